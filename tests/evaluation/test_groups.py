"""Metrics of groups: common thresholds, everybody else, small groups, single targets, and Holm's correction."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mia_audit.evaluation.files import Scored
from mia_audit.evaluation.groups import LEAST, Slices, group_rows, groups_table, holm
from mia_audit.evaluation.metrics import auc, called_above, tpr_at_fpr
from mia_audit.pools.groups import Grouping

KEY = ("loss-lira", "confidence", "pooled", False)


@given(
    scores=st.lists(st.integers(0, 6), min_size=4, max_size=60),
    fpr=st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.99]),
    seed=st.integers(0, 999),
)
def test_over_all_groups_the_common_threshold_is_the_exact_one(scores: list[int], fpr: float, seed: int) -> None:
    member = np.random.default_rng(seed).random(len(scores)) < 0.5
    member[:2] = True, False
    values = np.array(scores, dtype=np.float32)
    called = called_above(values[:, None], member[:, None], fpr)[:, 0]
    assert called[member].mean() == tpr_at_fpr(values, member, fpr)
    assert called[~member].mean() <= fpr


def test_what_has_no_score_is_never_called_and_counts_for_nobody() -> None:
    scores = np.array([[3.0], [np.nan], [2.0], [1.0], [np.nan]])
    member = np.array([[True], [False], [False], [True], [True]])
    assert called_above(scores, member, 0.5).ravel().tolist() == [True, False, False, False, False]
    assert called_above(scores, member, 1.0).ravel().tolist() == [True, False, True, True, False]


def scored(targets: int = 6, each: int = 300) -> tuple[Scored, Grouping]:
    """Two large groups, the second of which leaks, and one that is too small."""
    random = np.random.default_rng(0)
    of = np.repeat([0, 1, 2], [each, each, LEAST - 1])
    member = random.random((len(of), targets)) < 0.5
    score = (random.normal(size=member.shape) + 1.5 * member * (of == 1)[:, None]).astype(np.float32)
    return Scored(KEY, np.arange(targets), np.arange(len(of)), member, score), Grouping("site", ("a", "b", "c"), of)


def test_rows_are_the_metrics_of_a_group_and_of_everybody_else() -> None:
    found, site = scored()
    slices = Slices([site])
    table = groups_table(list(group_rows(found, slices, [0.05], 0.95)))
    assert table["group"].unique().sort().to_list() == ["a", "b"]
    assert slices.small == {"site": 1}
    for row in table.iter_rows(named=True):
        inside = site.of == "ab".index(row["group"])
        score, member = found.score[:, row["target"]], found.member[:, row["target"]]
        assert row["auc"] == pytest.approx(auc(score[inside], member[inside]))
        assert row["rest_auc"] == pytest.approx(auc(score[~inside], member[~inside]))
        assert row["tpr_at_fpr_0.05"] == pytest.approx(tpr_at_fpr(score[inside], member[inside], 0.05))
        threshold = np.sort(score[~member])[-1 - int(0.05 * (~member).sum())]
        assert row["common_tpr_at_fpr_0.05"] == pytest.approx((score[inside & member] > threshold).mean())
        assert row["common_fpr_at_fpr_0.05"] == pytest.approx((score[inside & ~member] > threshold).mean())
    means = table.group_by("group").agg(pl.col("auc", "common_tpr_at_fpr_0.05").mean()).sort("group")
    assert means["auc"].to_list() == pytest.approx([0.5, 0.856], abs=0.03)


def test_a_single_target_has_intervals_over_its_records() -> None:
    found, site = scored(targets=1)
    rows = list(group_rows(found, Slices([site]), [0.05], 0.95))
    for row in rows:
        assert row["auc_low"] < row["auc"] < row["auc_high"]
        assert row["common_tpr_at_fpr_0.05_low"] <= row["common_tpr_at_fpr_0.05"] <= row["common_tpr_at_fpr_0.05_high"]
        assert row["auc_error"] > 0 < row["rest_auc_error"]


def test_accuracy_is_that_of_the_groups_records_inside_and_outside() -> None:
    found, site = scored(targets=2)
    right = np.where(found.member, 1.0, (site.of == 0)[:, None])
    counts = np.ones((len(site.of), 1))
    rows = list(group_rows(found, Slices([site]), [0.05], 0.95, None, (right, counts)))
    assert {(row["group"], row["train_accuracy"], row["test_accuracy"]) for row in rows} == {("a", 1, 1), ("b", 1, 0)}


def test_without_rows_the_table_has_its_columns() -> None:
    assert len(groups_table([])) == 0


def test_holm_against_the_textbook() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, np.nan, 0.9]), [1.0, np.nan, 1.0])
