"""The empirical-Bayes ratio against its definition, target by target, and against the pooled one with few models."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mia_audit.attacks.design import Pairs
from mia_audit.attacks.engine.hierarchical import BINS, RECORDS_PER_BIN, CentredRecords, Ordered, ratio, tally
from mia_audit.attacks.engine.likelihood import PRIOR, likelihood_ratio
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.metrics import auc
from mia_audit.signals.name import Reading, read_signal

hierarchical_ratio = RATIOS["hierarchical"]


def draw(seed, records=300, models=7):
    """Draw records whose shift grows with their mean, as losses do."""
    rng = np.random.default_rng(seed)
    member = rng.random((records, models)) < 0.5
    mean = rng.normal(size=(records, 1))
    shift = np.maximum(0, 0.6 + 0.5 * mean + 0.2 * rng.normal(size=(records, 1)))
    return mean * 2 + rng.normal(size=(records, models)) + shift * member, member


def definition(signal, member, t, left=None):
    """Score target t as METHODS describe it, with D and T interpolated between bins; without the model `left` besides."""
    x = signal - np.median(signal, axis=0)
    others = (np.arange(x.shape[1]) != t) & (np.arange(x.shape[1]) != left)
    k, r = others.sum(), x.mean(1)
    sides = [[x[i, others & (member[i] == inside)] for i in range(len(x))] for inside in (True, False)]
    n = np.array([[len(row) for row in side] for side in sides])
    mean = np.array([[row.mean() if len(row) else np.nan for row in side] for side in sides])
    squares = np.array([[((row - row.mean()) ** 2).sum() if len(row) else 0.0 for row in side] for side in sides])
    pool = squares.sum(1) / np.maximum(n - 1, 0).sum(1)
    with np.errstate(divide="ignore"):
        noise = pool[0] / n[0] + pool[1] / n[1]
    d, known = mean[0] - mean[1], (n > 0).all(0)
    bins = np.array_split(np.argsort(r, kind="stable"), np.clip(len(r) // RECORDS_PER_BIN, 1, BINS))
    centres = [r[b].mean() for b in bins]
    tables = [(d[c].mean(), max(0, ((d[c] - d[c].mean()) ** 2 - noise[c]).mean())) for c in (b[known[b]] for b in bins)]
    expected, spread = (np.interp(x[:, others].mean(1), centres, column) for column in np.array(tables).T)
    with np.errstate(invalid="ignore"):
        shift = np.where(known, expected + (d - expected) * spread / (spread + noise), expected)
    mean_out = (x[:, others].sum(1) - n[0] * shift) / k
    logs = []
    for side, centre in ((0, mean_out + shift), (1, mean_out)):
        freedom = PRIOR + np.maximum(n[side] - 1, 0)
        variance = (PRIOR * pool[side] + squares[side]) / freedom * (1 + 1 / k)
        logs.append(stats.t.logpdf(x[:, t], freedom, centre, np.sqrt(variance)))
    return logs[0] - logs[1]


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_definition(seed):
    signal, member = draw(seed)
    scores = hierarchical_ratio(signal, member)
    for target in range(signal.shape[1]):
        # D and T are tabulated: the scores differ by the grid's resolution.
        np.testing.assert_allclose(scores[:, target], definition(signal, member, target), atol=0.03)


def test_pairs_of_models_are_scored_as_it_says():
    signal, member = draw(4)
    pairs = Pairs.among(range(4))
    found = ratio(Ordered(signal), member, pairs)
    assert found.shape == (len(signal), len(pairs)) and len(pairs) == 12
    for column, target, left in zip(found.T, pairs.target, pairs.left, strict=True):
        assert abs(column - definition(signal, member, target, left)).max() < 0.05


def test_sums_over_records_are_those_without_each_target():
    signal, member = draw(2, records=80)
    member[:10], member[10:20], member[20:30], member[30:40] = True, False, False, True
    member[20:30, 0], member[30:40, 0] = True, False  # one model on a side
    ordered = Ordered(signal)
    signal, member = ordered[:], ordered.reordered(member)
    moments, squares, freedom = np.zeros((5, 7)), np.zeros((2, 7)), np.zeros((2, 7))
    for t in range(7):
        others = np.arange(7) != t
        for x, here in zip(signal[:, others], member[:, others], strict=True):
            sides = [x[here], x[~here]]
            for index, side in enumerate(sides):
                squares[index, t] += ((side - side.mean()) ** 2).sum() if len(side) else 0
                freedom[index, t] += max(len(side) - 1, 0)
            if all(len(side) for side in sides):
                d = sides[0].mean() - sides[1].mean()
                moments[:, t] += 1, d, d**2, 1 / len(sides[0]), 1 / len(sides[1])
    for found, expected in zip(
        tally(CentredRecords(slice(80), ordered, member)), (moments, squares, freedom), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_needs_fewer_models_than_the_pooled_ratio():
    signal, member = draw(0, records=3000, models=17)
    gain = []
    for target in range(17):
        columns = [target, *(i for i in range(17) if i != target)][:9]
        few = hierarchical_ratio(signal[:, columns], member[:, columns])[:, 0]
        pooled = likelihood_ratio(signal[:, columns], member[:, columns], "pooled")[:, 0]
        scored = ~np.isnan(pooled)
        gain.append(auc(few, member[:, target]) - auc(pooled[scored], member[scored, target]))
    assert np.mean(gain) > 0.003 and stats.ttest_1samp(gain, 0).pvalue < 0.01


def test_every_record_has_a_score():
    signal, member = draw(1)
    member[:20], member[20:40] = True, False
    assert np.isfinite(hierarchical_ratio(signal, member)).all()


@settings(deadline=None, max_examples=15, derandomize=True)
@given(seed=st.integers(0, 99), scale=st.floats(1e-3, 1e3), offset=st.floats(-1e6, 1e6))
def test_affine_maps_and_column_offsets_change_nothing(seed, scale, offset):
    signal, member = draw(seed)
    mapped = signal * scale + offset + np.arange(signal.shape[1]) * scale
    np.testing.assert_allclose(hierarchical_ratio(mapped, member), hierarchical_ratio(signal, member), atol=0.02)


@settings(deadline=None, max_examples=10, derandomize=True)
@given(seed=st.integers(0, 99))
def test_the_order_of_records_and_models_does_not_matter(seed):
    signal, member = draw(seed)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(signal.shape[0]), rng.permutation(signal.shape[1])
    np.testing.assert_allclose(
        hierarchical_ratio(signal[rows][:, columns], member[rows][:, columns]),
        hierarchical_ratio(signal, member)[rows][:, columns],
        atol=0.02,
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_constant_signals_are_scored_zero(value):
    _, member = draw(4)
    assert (hierarchical_ratio(np.full(member.shape, value), member) == 0).all()


def test_permuted_membership_scores_by_chance():
    signal, member = draw(5, records=4000, models=9)
    null = np.random.default_rng(0).permuted(member, axis=0)
    aucs = [auc(s, m) for s, m in zip(hierarchical_ratio(signal, null).T, null.T, strict=True)]
    assert abs(np.mean(aucs) - 0.5) < 3 * 0.5 / np.sqrt(4000 * 9 / 4)


@pytest.mark.parametrize("name", ["confidence", "ixg_l1"])
@pytest.mark.parametrize("records", [300, 301])
def test_what_is_stored_in_float32_is_scored_exactly_as_in_float64(name, records):
    signal, member = draw(6, records, models=130)
    signal = np.asfortranarray(np.exp(signal) if name == "ixg_l1" else signal, dtype=np.float32)
    signal[5, 3] = 0
    whole = Reading(read_signal(name), [signal.astype(np.float64)]).scaled
    stored = Reading(read_signal(name), [signal]).prepared(Ordered)
    np.testing.assert_array_equal(ratio(stored, member), ratio(Ordered(whole), member))
    np.testing.assert_array_equal(stored[:].mean(axis=1)[:, None], stored.span.mean)
    assert whole.dtype == np.float64 and np.isfinite(whole).all()
