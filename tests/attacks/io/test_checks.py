"""Mistakes whose numbers are all in range."""

import numpy as np
import pytest

from mia_audit.attacks.io.parquet import check_coins, check_loss, check_orientation
from mia_audit.errors import UserError


def halves(records, models, seed=0):
    random = np.random.default_rng(seed)
    return np.stack([random.permutation(records) < records // 2 for _ in range(models)], axis=1)


@pytest.mark.parametrize("sharp", [0.5, 3.0])
def test_probabilities_are_no_losses(sharp):
    member = halves(400, 8)
    loss = np.random.default_rng(1).exponential(1 / sharp, member.shape) * (1 - 0.4 * member)
    check_loss(loss, member, "loss.npy")
    with pytest.raises(UserError, match="softmax probability, not its loss; give them as probability=FILE"):
        check_loss(np.exp(-loss), member, "loss.npy")


@pytest.mark.parametrize("lowest", [0.0, 0.4])
def test_small_losses_are_losses(lowest):
    """Of a model that fits well, and of one with two classes that hardly learned."""
    member = halves(400, 8)
    loss = lowest + 0.5 * np.random.default_rng(1).random(member.shape) ** 2 * (1 - 0.2 * member)
    check_loss(loss, member, "loss.npy")


def test_a_transposed_membership_is_named(capsys):
    member = halves(200, 12)
    check_orientation(member, "member.npy")
    with pytest.raises(UserError, match=r"read as 12 records of 200 models, but all rows .* transpose it"):
        check_orientation(member.T, "member.npy")
    assert capsys.readouterr().err == ""
    coins = np.random.default_rng(0).random((12, 200)) < 0.5
    check_orientation(coins, "member.npy")
    assert capsys.readouterr().err.count("\n") == 1


def test_halves_and_balanced_designs_are_no_coins():
    random = np.random.default_rng(0)
    check_coins(random.random((400, 8)) < 0.5, "--design bernoulli")
    with pytest.raises(UserError, match="exactly 200 of 400 records, so membership was not drawn by fair coins"):
        check_coins(halves(400, 8), "--design bernoulli")
    with pytest.raises(UserError, match="depend on each other"):
        check_coins(random.random((400, 8)).argsort(axis=1) < 4, "--design bernoulli")
