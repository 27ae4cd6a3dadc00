"""The offline forms against one loop per target with scipy's distributions."""

import numpy as np
import pytest
from scipy import stats

from mia_audit.attacks.engine.likelihood import LIKELIHOODS, PRIOR, offline_ratio


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
