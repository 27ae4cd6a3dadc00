"""The paired comparison against scipy, with what targets share."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mia_audit.errors import UserError
from mia_audit.evaluation.comparison import compare
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.report.data.findings import estimate


def metrics(**aucs):
    frames = [
        pl.DataFrame(
            {"attack": attack, "signal": "s", "likelihood": "v", "null_control": False, "target": range(len(values))}
            | {"members": 5, "non_members": 5}
            | {
                "auc": values,
                "balanced_accuracy": values,
                "tpr_at_fpr_0.1": [None, *values[1:]],
                "tpr_at_fpr_0.1_low": 0.0,
                "tpr_at_fpr_0.1_high": 1.0,
            }
        )
        for attack, values in aucs.items()
    ]
    return pl.concat(frames)


WIDENING = np.sqrt(2 * 3 / 2)
"""Of intervals of four targets where no further scorings say what they share."""


def test_agrees_with_scipy_on_targets_that_share_all_their_noise():
    first, second = np.array([0.6, 0.65, 0.7, 0.62]), np.array([0.58, 0.66, 0.66, 0.6])
    table = compare(metrics(a=first, b=second), ("a", "s", "v"), ("b", "s", "v"), confidence=0.9)
    expected = stats.ttest_rel(first, second)
    row = table.row(0, named=True)
    assert (row["metric"], row["targets"]) == ("auc", 4)
    assert (row["t"], row["p"]) == pytest.approx(
        (expected.statistic / WIDENING, 2 * stats.t.sf(expected.statistic / WIDENING, 3))
    )
    mean = (first - second).mean()
    ends = [mean + WIDENING * (end - mean) for end in expected.confidence_interval(0.9)]
    assert (row["low"], row["high"]) == pytest.approx(tuple(ends))
    assert table.filter(pl.col("metric") == "tpr_at_fpr_0.1")["targets"].item() == 3


def test_the_same_attack_differs_by_nothing():
    row = compare(metrics(a=[0.6, 0.7]), ("a", "s", "v"), ("a", "s", "v")).row(0, named=True)
    assert (row["difference"], row["p"]) == (0.0, 1.0)


def test_an_attack_that_is_not_there_is_named():
    with pytest.raises(UserError, match="no metrics of c s v; there are: a s v"):
        compare(metrics(a=[0.6, 0.7]), ("a", "s", "v"), ("c", "s", "v"))
    with pytest.raises(UserError, match="share 1 targets"):
        compare(metrics(a=[0.6]), ("a", "s", "v"), ("a", "s", "v"))


def test_targets_that_lose_nothing_without_a_model_are_independent():
    """The further scorings of both attacks change by the same: the difference shares nothing, and is Student's."""
    first, second = np.array([0.6, 0.65, 0.7, 0.62]), np.array([0.58, 0.66, 0.66, 0.6])
    lists = {name: [[v - 0.01 * k for k in range(4)] for v in values] for name, values in (("a", first), ("b", second))}
    for name, values in (("a", first), ("b", second)):
        for place, value in enumerate(values):
            lists[name][place][place] = None
            lists[name][place] = [
                None if v is None else value + 0.001 * (place + 2 * k) for k, v in enumerate(lists[name][place])
            ]
    table = metrics(a=first, b=second).with_columns(pl.Series("auc_without", lists["a"] + lists["b"]))
    row = compare(table, ("a", "s", "v"), ("b", "s", "v")).row(0, named=True)
    expected = stats.ttest_rel(first, second)
    assert (row["t"], row["p"]) == pytest.approx((expected.statistic, expected.pvalue))


def test_equivalence_is_the_larger_of_two_one_sided_tests():
    first, second = np.array([0.6, 0.65, 0.7, 0.62]), np.array([0.59, 0.655, 0.69, 0.625])
    row = compare(metrics(a=first, b=second), ("a", "s", "v"), ("b", "s", "v"), margin=0.02).row(0, named=True)
    gap = first - second
    error = WIDENING * gap.std(ddof=1) / 2
    sides = [stats.t.sf((gap.mean() + 0.02) / error, 3), stats.t.cdf((gap.mean() - 0.02) / error, 3)]
    assert (row["margin"], row["p_equivalence"]) == (0.02, pytest.approx(max(sides)))


def test_equivalence_is_shown_where_the_interval_of_twice_the_level_lies_within_the_margin():
    gap = OverTargets(np.array([0.01, 0.004, -0.002, 0.006, 0.001]))
    low, high = gap.interval(0.9)
    for margin in (max(abs(low), high) * 1.001, max(abs(low), high) * 0.999):
        assert (gap.equivalence(margin) < 0.05) == (-margin < low and high < margin)


def test_a_difference_as_large_as_the_margin_is_rarely_called_equivalent():
    random = np.random.default_rng(3)
    estimates = [estimate(random.normal(0.02, 0.01, 8), 0.95) for _ in range(2000)]
    assert 0.035 < np.mean([one.equivalence(0.02, 0.95) < 0.05 for one in estimates]) < 0.065


def test_settings_of_other_training_sets_are_not_paired():
    here, there = metrics(a=[0.6, 0.7, 0.65]), metrics(a=[0.5, 0.61, 0.57])
    there = there.with_columns(members=pl.Series([5, 5, 6]), non_members=pl.Series([5, 5, 4]))
    with pytest.raises(UserError, match="--against: target 2 has 6 members there and 5 here"):
        compare(here, ("a", "s", "v"), ("a", "s", "v"), against=there)


def test_one_attack_is_compared_between_two_settings():
    row = compare(metrics(a=[0.6, 0.7, 0.65]), ("a", "s", "v"), ("a", "s", "v"), against=metrics(a=[0.5, 0.61, 0.57]))
    assert row["difference"][0] == pytest.approx(0.09)
