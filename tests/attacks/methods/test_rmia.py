"""RMIA against the N × Z comparison of its definition, and base against RMIA at γ = 1."""

import numpy as np
import pytest

from mia_audit.attacks.methods.rmia import SLOPE, log_mean_of_others, log_reference, share_dominated


def draw(seed=0, records=50, models=6):
    rng = np.random.default_rng(seed)
    member = rng.random((records, models)) < 0.5
    return -np.exp(rng.normal(size=(records, models)) - member), member


def test_the_mean_of_the_others_is_exact_where_subtraction_would_cancel():
    likelihood = np.array([[0.0, -50.0, -51.0], [-700.0, -1.0, -800.0]])
    expected = [
        [np.logaddexp(-50, -51), np.logaddexp(0, -51), np.logaddexp(0, -50)],
        [np.logaddexp(-1, -800), -700, -1],
    ]
    np.testing.assert_allclose(log_mean_of_others(likelihood), np.array(expected) - np.log(2), rtol=1e-12)


def test_a_target_that_is_far_likelier_than_the_others_is_compared_with_them_all_the_same():
    likelihood = np.array([[-1.0, -1200.0, -1300.0]])
    np.testing.assert_allclose(log_mean_of_others(likelihood)[0, 0], -1200 - np.log(2), rtol=1e-12)


def test_the_offline_reference_is_its_formula():
    likelihood, member = draw()
    reference = log_reference(likelihood, member)
    for t in range(member.shape[1]):
        for i in range(len(member)):
            out = np.exp(likelihood[i, (np.arange(member.shape[1]) != t) & ~member[i]])
            expected = np.log(((1 + SLOPE) * out.mean() + 1 - SLOPE) / 2) if len(out) else np.nan
            assert reference[i, t] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_agrees_with_brute_force(gamma):
    likelihood, member = draw()
    ratio = likelihood - log_mean_of_others(likelihood)
    ratio[3] = np.nan
    scores = share_dominated(ratio, member, gamma)
    for t in range(member.shape[1]):
        for x in range(len(member)):
            population = [z for z in range(len(member)) if z != 3 and not member[z, t]]
            expected = np.mean([np.exp(ratio[x, t] - ratio[z, t]) >= gamma for z in population]) if x != 3 else np.nan
            assert scores[x, t] == pytest.approx(expected, nan_ok=True)


def test_base_ranks_as_rmia_at_gamma_1():
    """Up to ties: RMIA's share is the same for all records between two non-members."""
    for seed in range(5):
        likelihood, member = draw(seed)
        base = likelihood - log_mean_of_others(likelihood)
        rmia = share_dominated(base, member, gamma=1.0)
        for t in range(member.shape[1]):
            order = np.argsort(base[:, t])
            assert (np.diff(rmia[order, t]) >= 0).all()
            np.testing.assert_allclose(rmia[order, t], np.cumsum(~member[order, t]) / (~member[:, t]).sum())


def test_base_with_all_models_in_the_mean_ranks_the_same():
    likelihood, _ = draw()
    every = likelihood - np.log(np.exp(likelihood).mean(axis=1, keepdims=True))
    others = likelihood - log_mean_of_others(likelihood)
    for t in range(likelihood.shape[1]):
        np.testing.assert_array_equal(np.argsort(every[:, t]), np.argsort(others[:, t]))
