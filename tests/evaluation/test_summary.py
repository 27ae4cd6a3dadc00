"""Means over targets and their intervals."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mia_audit.evaluation.files import summarise


def metrics(aucs, tprs, attack="l1-lrt"):
    return pl.DataFrame(
        {
            "attack": attack,
            "signal": "ixg_l1",
            "likelihood": "pooled",
            "null_control": False,
            "target": range(len(aucs)),
            "members": 10,
            "non_members": 10,
            "unscored": 1,
            "auc": aucs,
            "auc_low": 0.0,
            "auc_high": 1.0,
            "balanced_accuracy": 0.6,
            "tpr_at_fpr_0.001": tprs,
            "tpr_at_fpr_0.001_low": 0.0,
            "tpr_at_fpr_0.001_high": 1.0,
        },
        schema_overrides={"tpr_at_fpr_0.001": pl.Float64},
    )


def test_the_interval_without_further_scorings_takes_what_targets_share_for_noise():
    aucs = [0.6, 0.65, 0.7, 0.61]
    row = summarise(metrics(aucs, [0.1] * 4), confidence=0.9).row(0, named=True)
    low, high = stats.t.interval(0.9, 3, np.mean(aucs), np.sqrt(2 * 3 / 2) * stats.sem(aucs))
    assert (row["targets"], row["auc_mean"], row["auc_sd"]) == (
        4,
        pytest.approx(np.mean(aucs)),
        pytest.approx(np.std(aucs, ddof=1)),
    )
    assert (row["auc_low"], row["auc_high"]) == pytest.approx((low, high))


def test_a_metric_that_one_target_cannot_resolve_is_null():
    row = summarise(metrics([0.6, 0.7], [0.1, None])).row(0, named=True)
    assert row["tpr_at_fpr_0.001_mean"] is None and row["tpr_at_fpr_0.001_high"] is None
    assert row["auc_mean"] == pytest.approx(0.65)


def test_one_target_has_its_own_interval_and_none_of_a_further_one():
    row = summarise(metrics([0.6], [0.1]).with_columns(auc_low=0.4, auc_high=0.7)).row(0, named=True)
    assert (row["auc_mean"], row["auc_sd"], row["auc_low"], row["auc_high"]) == (0.6, None, 0.4, 0.7)
    assert row["auc_future_low"] is None and row["p_above_guessing"] > 0.1


def test_rows_keep_their_order_and_intervals_stay_within_zero_and_one():
    table = summarise(pl.concat([metrics([0.5, 1.0], [0.0, 1.0], attack) for attack in ("threshold", "l1-lrt")]))
    assert table["attack"].to_list() == ["threshold", "l1-lrt"]
    assert table["auc_high"].max() == 1.0 and table["tpr_at_fpr_0.001_low"].min() == 0.0


def test_a_future_target_lies_in_a_wider_interval_and_guessing_is_tested():
    row = summarise(metrics([0.55, 0.56, 0.54, 0.57], [0.1] * 4)).row(0, named=True)
    assert row["auc_future_low"] < row["auc_low"] < row["auc_high"] < row["auc_future_high"]
    z = (0.555 - 0.5) / np.sqrt(2 * 21 / (12 * 100 * 4))
    assert row["p_above_guessing"] == pytest.approx(stats.norm.sf(z))
