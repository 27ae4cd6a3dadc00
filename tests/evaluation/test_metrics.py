"""Metrics against brute force over all thresholds, scikit-learn and scipy."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from mia_audit.evaluation import auc, balanced_accuracy, roc_curve, target_metrics, tpr_at_fpr
from mia_audit.evaluation.metrics import auc_interval, clopper_pearson, read_out

labelled = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=60)


def split(pairs):
    scores = np.array([score for score, _ in pairs], dtype=np.float32)
    member = np.array([inside for _, inside in pairs])
    assume(member.any() and not member.all())
    return scores, member


@settings(deadline=None, max_examples=300, derandomize=True)
@given(pairs=labelled, fpr=st.one_of(st.floats(0.001, 0.999), st.integers(1, 59).map(lambda n: n / 60)))
def test_tpr_at_fpr_is_the_best_threshold_within_the_nominal_rate(pairs, fpr):
    scores, member = split(pairs)
    best = 0.0
    for threshold in [np.inf, *scores]:
        called = scores >= threshold
        if called[~member].mean() <= fpr:
            best = max(best, called[member].mean())
    assert tpr_at_fpr(scores, member, fpr) == pytest.approx(best, abs=1e-12)
    f, t, _ = roc_curve(scores, member)
    assert read_out(f, t, np.array([fpr]))[0] == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("n", [10, 29, 70, 100, 1000])
def test_rates_that_are_counts_over_n_are_not_rounded_away(n):
    scores = np.concatenate([np.arange(n), np.arange(n) + 0.5])
    member = np.arange(2 * n) >= n
    for count in range(1, n):
        assert tpr_at_fpr(scores, member, count / n) == pytest.approx((count + 1) / n)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(pairs=labelled)
def test_curve_auc_and_accuracy_agree_with_scikit_learn(pairs):
    scores, member = split(pairs)
    f, t, thresholds = roc_curve(scores, member)
    expected = sk.roc_curve(member, scores, drop_intermediate=False)
    for ours, theirs in zip((f, t, thresholds), expected, strict=True):
        np.testing.assert_allclose(ours, theirs)
    assert auc(scores, member) == pytest.approx(sk.roc_auc_score(member, scores))
    assert balanced_accuracy(scores, member) == pytest.approx(((t + 1 - f) / 2).max())


@settings(deadline=None, max_examples=100, derandomize=True)
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
