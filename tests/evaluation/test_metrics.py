"""Metrics and mean curves against brute force over all thresholds, scikit-learn and scipy."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk
from sklearn.metrics import roc_auc_score

from mia_audit.evaluation.metrics import (
    Ranking,
    _integers,
    auc,
    auc_interval,
    authors_read_out,
    clopper_pearson,
    log_grid,
    mean_log_roc,
    metrics_of_columns,
    target_metrics,
    tpr_at_fpr,
)

labelled = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=60)


def split(pairs):
    scores = np.array([score for score, _ in pairs], dtype=np.float32)
    member = np.array([inside for _, inside in pairs])
    assume(member.any() and not member.all())
    return scores, member


@given(pairs=labelled, fpr=st.one_of(st.floats(0.001, 0.999), st.integers(1, 59).map(lambda n: n / 60)))
def test_tpr_at_fpr_is_the_best_threshold_within_the_nominal_rate(pairs, fpr):
    scores, member = split(pairs)
    best = 0.0
    for threshold in [np.inf, *scores]:
        called = scores >= threshold
        if called[~member].mean() <= fpr:
            best = max(best, called[member].mean())
    assert tpr_at_fpr(scores, member, fpr) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("n", [10, 29, 70, 100, 1000])
def test_rates_that_are_counts_over_n_are_not_rounded_away(n):
    scores = np.concatenate([np.arange(n), np.arange(n) + 0.5])
    member = np.arange(2 * n) >= n
    for count in range(1, n):
        assert tpr_at_fpr(scores, member, count / n) == pytest.approx((count + 1) / n)


@given(pairs=labelled)
def test_auc_and_accuracy_agree_with_scikit_learn(pairs):
    scores, member = split(pairs)
    f, t, _ = sk.roc_curve(member, scores)
    assert auc(scores, member) == pytest.approx(sk.roc_auc_score(member, scores))
    assert Ranking(scores, member).balanced_accuracy() == pytest.approx(((t + 1 - f) / 2).max())


@given(pairs=labelled)
def test_delong_variance_agrees_with_its_definition(pairs):
    scores, member = split(pairs)
    inside, outside = scores[member], scores[~member]
    assume(len(inside) > 1 and len(outside) > 1)
    wins = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    variance = wins.mean(1).var(ddof=1) / len(inside) + wins.mean(0).var(ddof=1) / len(outside)
    assume(0 < wins.mean() < 1)
    row = target_metrics(scores, member, [])
    low, high = auc_interval(wins.mean(), variance, len(inside), len(outside), 0.95)
    assert (row["auc_low"], row["auc_high"]) == pytest.approx((low, high))


def test_intervals_cover_the_truth():
    rng = np.random.default_rng(0)
    truth, hits = stats.norm.cdf(0.5 / np.sqrt(2)), []
    member = np.arange(400) < 200
    for _ in range(400):
        row = target_metrics(rng.normal(size=400) + 0.5 * member, member, [0.1])
        hits.append([row["auc_low"] <= truth <= row["auc_high"]])
    assert 0.92 <= np.mean(hits) <= 0.98


def test_clopper_pearson_agrees_with_scipy():
    for successes in (0, 1, 7, 29, 30):
        expected = stats.binomtest(successes, 30).proportion_ci(0.9, method="exact")
        assert clopper_pearson(successes, 30, 0.9) == pytest.approx((expected.low, expected.high))


def test_perfect_scores_have_an_interval_of_positive_width():
    row = target_metrics(np.arange(40.0), np.arange(40) >= 20, [0.1])
    assert row["auc"] == row["auc_high"] == 1.0
    assert row["auc_low"] == pytest.approx(0.025 ** (1 / 20))


def test_a_rate_below_one_non_member_is_not_resolvable():
    row = target_metrics(np.arange(400.0), np.arange(400) % 2 == 0, [0.001, 0.005])
    assert row["tpr_at_fpr_0.001"] is None and row["tpr_at_fpr_0.001_low"] is None
    assert row["tpr_at_fpr_0.005"] is not None


def test_unscored_records_are_counted_and_left_out():
    scores = np.array([3.0, np.nan, 1.0, 2.0, np.nan, 0.0])
    member = np.array([True, True, False, True, False, False])
    row = target_metrics(scores, member, [0.5])
    assert (row["members"], row["non_members"], row["unscored"], row["auc"]) == (2, 2, 2, 1.0)


def test_without_a_scored_member_there_are_no_metrics():
    row = target_metrics(np.array([np.nan, 1.0]), np.array([True, False]), [0.5])
    assert row["unscored"] == 1 and row["auc"] is None and row["tpr_at_fpr_0.5"] is None


value = st.sampled_from([-np.inf, -3.5, -1.5, -1e-40, -0.0, 0.0, 1e-40, 1.0, 2.0, np.inf, np.nan])
ranked = st.lists(st.tuples(value, st.booleans()), max_size=40)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(pairs=ranked)
def test_counts_are_those_of_every_threshold(kind, pairs):
    scores = np.array([score for score, _ in pairs], dtype=kind)
    member = np.array([inside for _, inside in pairs], dtype=bool)
    ranking = Ranking(scores, member)
    levels = sorted({score for score in scores.tolist() if not np.isnan(score)})
    assert ranking.missed.tolist() == [int((member & (scores <= level)).sum()) for level in levels]
    assert ranking.spared.tolist() == [int((~member & (scores <= level)).sum()) for level in levels]
    known = ~np.isnan(scores)
    assert (ranking.members, ranking.non_members) == (int((member & known).sum()), int((~member & known).sum()))


@given(columns=st.lists(st.lists(st.tuples(value, st.booleans()), min_size=7, max_size=7), min_size=1, max_size=5))
def test_columns_ranked_at_once_have_the_metrics_of_each(columns):
    scores = np.array([[score for score, _ in column] for column in columns], dtype=np.float32).T
    member = np.array([[inside for _, inside in column] for column in columns], dtype=bool).T
    fprs = (0.01, 0.25, 0.5)
    found = metrics_of_columns(scores, member, fprs)
    for place in range(len(columns)):
        row = target_metrics(scores[:, place], member[:, place], fprs)
        expected = {name: np.nan if row[name] is None else row[name] for name in found}
        assert {name: values[place] for name, values in found.items()} == pytest.approx(
            expected, abs=1e-12, nan_ok=True
        )


def test_sorting_takes_32_bits_unless_sizes_differ_by_the_128th_power_of_two():
    for scores, kind in (([-3.0, 0.0, 2.0**-120, 7.0], np.int32), ([-3.0, 2.0**-127], np.int64), ([], np.int32)):
        integers = _integers(np.array(scores, dtype=np.float32))
        assert integers.dtype == kind and (np.diff(integers[np.argsort(scores)]) > 0).all()


def test_the_mean_curve_is_the_mean_of_exact_read_outs():
    rng = np.random.default_rng(0)
    targets = [(rng.integers(0, 20, 100).astype(float), rng.random(100) < 0.5) for _ in range(3)]
    grid = log_grid(50, points=7)
    mean, sd = mean_log_roc(targets, grid)
    expected = np.array([[tpr_at_fpr(scores, member, fpr) for fpr in grid] for scores, member in targets])
    np.testing.assert_allclose(mean, expected.mean(0))
    np.testing.assert_allclose(sd, expected.std(0, ddof=1))
    assert (grid[0], grid[-1]) == (1 / 50, 1.0)


def test_one_target_has_no_spread():
    mean, sd = mean_log_roc([(np.arange(10.0), np.arange(10) > 4)], log_grid(5))
    assert (mean == 1).all() and (sd == 0).all()


def test_it_keeps_the_auc_and_reports_non_members_that_stand_out():
    """A tenth of the non-members is recognised for sure and no member is: their TPR at 0.1 % is that tenth."""
    rng = np.random.default_rng(1)
    member = rng.random(20_000) < 0.5
    scores = rng.normal(size=20_000) - 100 * (~member & (rng.random(20_000) < 0.1))
    tprs, auc = authors_read_out(scores, member)
    assert auc == pytest.approx(roc_auc_score(member, scores), abs=1e-4)
    assert tprs[0] > 0.09 and tpr_at_fpr(scores, member, 0.001) < 0.003
    scores[:100] = np.nan
    assert authors_read_out(scores, member) == authors_read_out(scores[100:], member[100:])
