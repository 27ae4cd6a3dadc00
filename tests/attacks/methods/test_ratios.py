"""Ratios of one signal: the offline forms against a loop with scipy, and guessing where a signal says nothing of membership."""

import numpy as np
import pytest
from scipy import stats

from mia_audit.attacks.engine.likelihood import LIKELIHOODS, PRIOR, offline_ratio
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.metrics import auc
from mia_audit.pools.section import Membership
from mia_audit.pools.store import draw_membership


def draw(seed=0, records=40, models=9):
    rng = np.random.default_rng(seed)
    member = rng.random((records, models)) < 0.5
    return rng.normal(size=(records, 1)) * 3 + rng.normal(size=(records, models)) + member, member


def distribution(x, pool, likelihood):
    n, squares = len(x), ((x - x.mean()) ** 2).sum()
    if likelihood == "pooled":
        return stats.norm(x.mean(), np.sqrt(pool))
    if likelihood == "per-record":
        return stats.norm(x.mean(), x.std())
    scale = (PRIOR * pool + squares) / (PRIOR + n - 1) * (1 + 1 / n)
    return stats.t(PRIOR + n - 1, x.mean(), np.sqrt(scale))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_agrees_with_a_loop_over_targets(likelihood):
    signal, member = draw()
    least = 2 if likelihood == "per-record" else 1
    high, low, either = (offline_ratio(signal, member, likelihood, side) for side in ("high", "low", "either"))
    for t in range(signal.shape[1]):
        others = np.arange(signal.shape[1]) != t
        out = [row[others & ~here] for row, here in zip(signal, member, strict=True)]
        pool = sum(((x - x.mean()) ** 2).sum() for x in out if len(x)) / sum(len(x) - 1 for x in out if len(x))
        for i, x in enumerate(out):
            if len(x) < least:
                assert np.isnan([high[i, t], low[i, t], either[i, t]]).all()
                continue
            expected = distribution(x, pool, likelihood)
            assert high[i, t] == pytest.approx(-expected.logsf(signal[i, t]), rel=1e-6, abs=1e-9)
            assert low[i, t] == pytest.approx(-expected.logcdf(signal[i, t]), rel=1e-6, abs=1e-9)
            assert either[i, t] == pytest.approx(-expected.logpdf(signal[i, t]), rel=1e-6, abs=1e-9)


def test_the_tail_keeps_its_resolution():
    signal, member = draw()
    member[:, :5] = False
    signal[0, 0], signal[1, 0] = signal[0].mean() + 60, signal[1].mean() + 70
    scores = offline_ratio(signal, member, "pooled", "high")[:2, 0].astype(np.float32)
    assert np.isfinite(scores).all() and scores[0] > 500 and scores[1] > scores[0]


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
