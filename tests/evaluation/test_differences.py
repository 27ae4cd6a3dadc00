"""Differences between two attacks over the same targets, against scipy, with what targets share."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mia_audit.evaluation.intervals import OverTargets
from mia_audit.report.findings import Leak, difference, estimate, welch

FIRST, SECOND = np.array([0.6, 0.65, 0.7, 0.62]), np.array([0.58, 0.66, 0.66, 0.6])

WIDENING = np.sqrt(2 * 3 / 2)
"""Of intervals of four targets where no further scorings say what they share."""


def aucs(values, without=None):
    columns = {"target": range(len(values)), "members": 5, "non_members": 5, "auc": values}
    return OverTargets.from_metrics(
        pl.DataFrame(columns | ({} if without is None else {"auc_without": without})), "auc"
    )


def test_agrees_with_scipy_on_targets_that_share_all_their_noise():
    gap = aucs(FIRST).minus(aucs(SECOND))
    expected = stats.ttest_rel(FIRST, SECOND)
    assert (gap.t(), gap.p_value()) == pytest.approx(
        (expected.statistic / WIDENING, 2 * stats.t.sf(expected.statistic / WIDENING, 3))
    )
    mean = (FIRST - SECOND).mean()
    ends = [mean + WIDENING * (end - mean) for end in expected.confidence_interval(0.9)]
    assert gap.interval(0.9) == pytest.approx(tuple(ends))


def test_the_same_attack_differs_by_nothing():
    gap = aucs([0.6, 0.7]).minus(aucs([0.6, 0.7]))
    assert (gap.mean, gap.p_value()) == (0.0, 1.0)


def test_targets_that_lose_nothing_without_a_model_are_independent():
    """The further scorings of both attacks change by the same: the difference shares nothing, and is Student's."""
    lists = [
        [[None if k == place else value + 0.001 * (place + 2 * k) for k in range(4)] for place, value in enumerate(one)]
        for one in (FIRST, SECOND)
    ]
    gap = aucs(FIRST, lists[0]).minus(aucs(SECOND, lists[1]))
    expected = stats.ttest_rel(FIRST, SECOND)
    assert (gap.t(), gap.p_value()) == pytest.approx((expected.statistic, expected.pvalue))


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    second = np.array([0.59, 0.655, 0.69, 0.625])
    gap = FIRST - second
    error = WIDENING * gap.std(ddof=1) / 2
    sides = [stats.t.sf((gap.mean() + 0.02) / error, 3), stats.t.cdf((gap.mean() - 0.02) / error, 3)]
    assert aucs(FIRST).minus(aucs(second)).equivalence(0.02) == pytest.approx(max(sides))


def test_equivalence_is_shown_where_the_interval_of_twice_the_level_lies_within_the_margin():
    gap = OverTargets(np.array([0.01, 0.004, -0.002, 0.006, 0.001]))
    low, high = gap.interval(0.9)
    for margin in (max(abs(low), high) * 1.001, max(abs(low), high) * 0.999):
        assert (gap.equivalence(margin) < 0.05) == (-margin < low and high < margin)


def test_a_difference_as_large_as_the_margin_is_rarely_called_equivalent():
    random = np.random.default_rng(3)
    estimates = [estimate(random.normal(0.02, 0.01, 8), 0.95) for _ in range(2000)]
    assert 0.035 < np.mean([one.equivalence(0.02, 0.95) < 0.05 for one in estimates]) < 0.065


def test_settings_with_different_numbers_of_models_are_compared_by_as_many():
    def leak(values, by_first=None):
        unresolved = np.full(len(values), np.nan)
        return Leak("a", "s", "none", np.arange(len(values)), np.asarray(values), unresolved, 1, 0.9, by_first=by_first)

    alone, small = leak([0.6, 0.61, 0.62, 0.6]), leak(SECOND)
    larger = leak([0.7, 0.72, 0.71, 0.7, 0.75], by_first=alone)
    for first, second, sign in ((larger, small, 1), (small, larger, -1)):
        gap = difference(first, second)
        assert gap.mean == pytest.approx(sign * np.mean(alone.auc - SECOND))
        assert (gap.high - gap.low) == pytest.approx(np.ptp(aucs(alone.auc).minus(aucs(SECOND)).interval(0.9)))
    assert difference(larger, leak(FIRST)).targets == 4 and difference(larger, larger).targets == 5


def test_means_of_unrelated_data_sets_differ_as_scipy_says():
    first, second = FIRST, np.array([0.5, 0.7, 0.61, 0.64, 0.52, 0.6])
    expected = stats.ttest_ind(first, second, equal_var=False)
    gap = welch([(one.mean(), one.std(ddof=1) / len(one) ** 0.5, len(one)) for one in (first, second)], 0.9)
    assert (gap.low, gap.high) == pytest.approx(tuple(expected.confidence_interval(0.9)))
    assert gap.mean == pytest.approx(first.mean() - second.mean()) and gap.targets == 4
    assert np.isnan(welch([(0.6, 0.1, 1), (0.5, 0.1, 9)], 0.9).low)
    assert welch([(0.6, 0.0, 3), (0.5, 0.0, 3)], 0.9).high == pytest.approx(0.1)
