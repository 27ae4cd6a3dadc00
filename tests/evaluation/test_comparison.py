"""The paired comparison against scipy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mia_audit.errors import UserError
from mia_audit.evaluation.comparison import compare


def metrics(**aucs):
    frames = [
        pl.DataFrame(
            {"attack": attack, "signal": "s", "likelihood": "v", "null_control": False, "target": range(len(values))}
            | {
                "auc": values,
                "balanced_accuracy": values,
                "tpr_at_fpr_0.1": [None, *values[1:]],
                "tpr_at_fpr_0.1_low": 0.0,
            }
        )
        for attack, values in aucs.items()
    ]
    return pl.concat(frames)


def test_agrees_with_scipy():
    first, second = np.array([0.6, 0.65, 0.7, 0.62]), np.array([0.58, 0.66, 0.66, 0.6])
    table = compare(metrics(a=first, b=second), ("a", "s", "v"), ("b", "s", "v"), confidence=0.9)
    expected = stats.ttest_rel(first, second)
    row = table.row(0, named=True)
    assert (row["metric"], row["targets"]) == ("auc", 4)
    assert (row["t"], row["p"]) == pytest.approx((expected.statistic, expected.pvalue))
    assert (row["low"], row["high"]) == pytest.approx(tuple(expected.confidence_interval(0.9)))
    assert table.filter(pl.col("metric") == "tpr_at_fpr_0.1")["targets"].item() == 3


def test_the_same_attack_differs_by_nothing():
    row = compare(metrics(a=[0.6, 0.7]), ("a", "s", "v"), ("a", "s", "v")).row(0, named=True)
    assert (row["difference"], row["p"]) == (0.0, 1.0)


def test_an_attack_that_is_not_there_is_named():
    with pytest.raises(UserError, match="no metrics of c s v; there are: a s v"):
        compare(metrics(a=[0.6, 0.7]), ("a", "s", "v"), ("c", "s", "v"))
    with pytest.raises(UserError, match="share 1 targets"):
        compare(metrics(a=[0.6]), ("a", "s", "v"), ("a", "s", "v"))
