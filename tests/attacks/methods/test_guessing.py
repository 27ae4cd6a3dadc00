"""Signals that say nothing about membership, under the designs that audits draw: attacks do no better than guessing."""

import numpy as np
import pytest
from scipy import stats

from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation import auc
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.pools.section import Membership
from mia_audit.pools.store import draw_membership

DRAWS = {"blend": 12, "types": 30}
"""Draws of the membership, fewer of ratios that take longer; of the others 60."""


def aucs(ratio, signal, member):
    scores = RATIOS[ratio](signal, member)
    scored = ~np.isnan(scores)
    return np.array([auc(s[k], m[k]) for s, m, k in zip(scores.T, member.T, scored.T, strict=True)])


def half(seed, records=300, models=9):
    return draw_membership(Membership(design="half", models=models), records, "pool", seed)


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_signal_that_all_models_share_is_guessing(ratio):
    """How many models a record is in must not count as evidence."""
    member = half(0)
    records = np.random.default_rng(0).normal(size=(len(member), 1))
    for signal in (np.ones(member.shape), np.repeat(records, member.shape[1], axis=1)):
        assert (aucs(ratio, signal, member) == 0.5).all()


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("noise", ["normal", "rounding"])
def test_noise_is_guessing_over_draws_of_the_membership(ratio, noise):
    """Every model has half of the records, but models are drawn independently: no bias, and the interval holds ½."""
    means, holding, draws = [], 0, DRAWS.get(ratio, 60)
    for seed in range(draws):
        random, member = np.random.default_rng(seed), half(seed)
        exact = 1.0 + np.finfo(np.float64).eps * random.integers(-2, 3, member.shape)
        found = aucs(ratio, random.normal(size=member.shape) if noise == "normal" else exact, member)
        low, high = OverTargets(found).interval(0.95)
        holding += low <= 0.5 <= high
        means.append(found.mean())
    assert abs(np.mean(means) - 0.5) < 3 * stats.sem(means)
    assert holding >= 0.9 * draws
