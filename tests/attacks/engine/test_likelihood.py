"""The closed form against one loop per target with scipy's densities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mia_audit.attacks.engine.likelihood import LIKELIHOODS, PRIOR, blocks, likelihood_ratio, pooled_variances


def draw(seed, records=40, models=9, shift=1.0):
    rng = np.random.default_rng(seed)
    member = rng.random((records, models)) < 0.5
    signal = rng.normal(size=(records, 1)) * 3 + rng.normal(size=(records, models)) + shift * member
    return signal, member


def loop(signal, member, likelihood):
    """Score every target in turn, record by record, from the definitions."""
    scores = np.full(signal.shape, np.nan)
    for t in range(signal.shape[1]):
        others = np.arange(signal.shape[1]) != t
        sides = [
            [row[others & (here == inside)] for row, here in zip(signal, member, strict=True)]
            for inside in (True, False)
        ]
        pools = [
            sum(((x - x.mean()) ** 2).sum() for x in side if len(x)) / sum(len(x) - 1 for x in side if len(x))
            for side in sides
        ]
        for i in range(len(signal)):
            logs = []
            for side, pool in zip(sides, pools, strict=True):
                x, n = side[i], len(side[i])
                if n < (2 if likelihood == "per-record" else 1):
                    break
                if likelihood == "pooled":
                    logs.append(stats.norm.logpdf(signal[i, t], x.mean(), np.sqrt(pool)))
                elif likelihood == "per-record":
                    logs.append(stats.norm.logpdf(signal[i, t], x.mean(), x.std()))
                else:
                    v = (PRIOR * pool + ((x - x.mean()) ** 2).sum()) / (PRIOR + n - 1)
                    logs.append(stats.t.logpdf(signal[i, t], PRIOR + n - 1, x.mean(), np.sqrt(v * (1 + 1 / n))))
            if len(logs) == 2:
                scores[i, t] = logs[0] - logs[1]
    return scores


@pytest.mark.parametrize("likelihood", ["pooled", "per-record", "shrunk"])
def test_agrees_with_a_loop_over_targets(likelihood):
    signal, member = draw(0)
    np.testing.assert_allclose(
        likelihood_ratio(signal, member, likelihood), loop(signal, member, likelihood), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_records_without_enough_models_on_a_side_have_no_score(likelihood):
    signal, member = draw(1, models=8)
    member[0], member[1, :1], member[1, 1:] = True, True, False
    scores = likelihood_ratio(signal, member, likelihood)
    assert np.isnan(scores[0]).all()
    assert np.isnan(scores[1, 0])  # without the only member there is none
    assert np.isnan(scores[1, 1:]).all() == (likelihood == "per-record")


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_blocks_do_not_matter(likelihood, monkeypatch):
    signal, member = draw(2)
    whole = likelihood_ratio(signal, member, likelihood)
    monkeypatch.setattr("mia_audit.attacks.engine.likelihood.BLOCK_CELLS", 30)
    monkeypatch.setattr("mia_audit.attacks.engine.likelihood.BLOCK_RECORDS", 7)
    np.testing.assert_allclose(likelihood_ratio(signal, member, likelihood), whole, rtol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@settings(deadline=None, max_examples=20, derandomize=True)
@given(seed=st.integers(0, 99), scale=st.floats(1e-3, 1e3), offset=st.floats(-1e6, 1e6), flip=st.booleans())
def test_affine_maps_of_the_signal_change_nothing(likelihood, seed, scale, offset, flip):
    signal, member = draw(seed)
    mapped = signal * (-scale if flip else scale) + offset
    np.testing.assert_allclose(
        likelihood_ratio(mapped, member, likelihood), likelihood_ratio(signal, member, likelihood), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@settings(deadline=None, max_examples=10, derandomize=True)
@given(seed=st.integers(0, 99))
def test_the_order_of_records_and_models_does_not_matter(likelihood, seed):
    signal, member = draw(seed)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(signal.shape[0]), rng.permutation(signal.shape[1])
    np.testing.assert_allclose(
        likelihood_ratio(signal[rows][:, columns], member[rows][:, columns], likelihood),
        likelihood_ratio(signal, member, likelihood)[rows][:, columns],
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_large_offsets_do_not_cancel(likelihood):
    signal, member = draw(3)
    np.testing.assert_allclose(
        likelihood_ratio(signal + 1e8, member, likelihood),
        likelihood_ratio(signal, member, likelihood),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_constant_signals_are_scored_zero(likelihood):
    _, member = draw(4, models=17)
    member[:, :4], member[:, 4:8] = True, False
    for value in (0.0, 1.0, 0.1, 1e30, 1e-30):
        scores = likelihood_ratio(np.full(member.shape, value), member, likelihood)
        assert (scores == 0).all()


def test_one_outlier_over_constant_shadows_is_finite_in_float32():
    _, member = draw(5, models=17)
    member[:, :4], member[:, 4:8] = True, False
    signal = np.full(member.shape, 3.0)
    signal[0, 0] = 4.0
    for likelihood in LIKELIHOODS:
        assert np.isfinite(likelihood_ratio(signal, member, likelihood).astype(np.float32)).all()


def test_known_power_in_the_gaussian_case():
    """With ample models the pooled ratio of N(shift, 1) against N(0, 1) has AUC Φ(shift/√2)."""
    signal, member = draw(6, records=4000, models=65, shift=1.2)
    scores = likelihood_ratio(signal, member, "pooled")
    aucs = [
        stats.mannwhitneyu(s[m], s[~m]).statistic / (m.sum() * (~m).sum())
        for s, m in zip(scores.T, member.T, strict=True)
    ]
    assert np.mean(aucs) == pytest.approx(stats.norm.cdf(1.2 / np.sqrt(2)), abs=0.01)


def test_pooled_variances_leave_the_target_out():
    signal, member = draw(7)
    changed = signal.copy()
    changed[:, 0] += 1e3 * np.random.default_rng(0).normal(size=len(signal))
    before, after = (pooled_variances(blocks(s, member), s.shape[1]) for s in (signal, changed))
    for left, right in zip(before, after, strict=True):
        assert left[0, 0] == pytest.approx(right[0, 0])
        assert (right[0, 1:] > 100 * left[0, 1:]).all()
