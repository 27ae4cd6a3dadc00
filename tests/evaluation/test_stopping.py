"""Looking repeatedly: intervals that hold together, and where an audit stops."""

import math

import numpy as np
import polars as pl
import pytest

from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.stopping import Look, column, enough, look, rungs, screens


def test_the_last_rung_is_the_whole_audit() -> None:
    assert rungs("auto", 17) == [5, 9, 17]
    assert rungs("auto", 40) == [5, 9, 17, 33, 40]
    assert rungs((12, 6), 10) == [7, 10]
    assert rungs("auto", 5) == [5]


def test_one_or_two_other_models_are_references_of_a_screen() -> None:
    assert screens("auto") == [2] and rungs((2, 1, 3), 10) == [4, 10]
    assert screens((8, 2, 1)) == [1, 2] and screens((4,)) == []


def metrics(**means: float) -> pl.DataFrame:
    """A table of two attacks on six targets."""
    random = np.random.default_rng(0)
    keys = {"signal": "loss", "likelihood": "none", "null_control": False}
    return pl.concat(
        pl.DataFrame(
            {
                "attack": attack,
                **keys,
                "target": range(6),
                "auc": mean + 0.01 * random.normal(size=6),
                "members": 100,
                "non_members": 100,
            }
        )
        for attack, mean in means.items()
    ).with_columns(pl.lit(None, pl.Float64).alias("tpr_at_fpr_0.01"))


def test_a_look_is_at_the_strongest_attack_and_at_its_share_of_the_level() -> None:
    table = metrics(weak=0.55, strong=0.6)
    (auc, rate) = look(table, ["auc", "tpr_at_0.01"], 0.95, 4)
    assert auc.attack == "strong" and auc.models == 6 and math.isnan(rate.half)
    wider = OverTargets.of(table.filter(attack="strong"), "auc").interval(1 - 0.05 / 4)
    assert (auc.low, auc.high) == pytest.approx(wider)
    assert column("tpr_at_0.01") == "tpr_at_fpr_0.01" and column("auc") == "auc"
    assert look(table.filter(attack="none"), ["auc"], 0.95, 4) == []


def test_it_stops_where_every_interval_is_narrow() -> None:
    one, other = (Look("a", "s", "l", "auc", 5, 0.6, 0.6 - half, 0.6 + half) for half in (0.01, 0.03))
    unknown = Look("a", "s", "l", "tpr_at_0.01", 5, *[math.nan] * 3)
    assert enough([one], {"auc": 0.011}) and not enough([one, other], {"auc": 0.011})
    assert not enough([one, unknown], {"auc": 0.011, "tpr_at_0.01": 0.5}) and not enough([], {"auc": 1.0})


@pytest.mark.parametrize("asked", [0.02, 0.008])
def test_the_interval_at_the_stop_holds_although_it_was_looked_at_four_times(asked: float) -> None:
    """As many targets as models, whose mean is known; benchmarks/stopped_coverage.py simulates whole audits."""
    counts, audits, held, usual = rungs("auto", 33), 600, 0, 0
    for seed in range(audits):
        values = 0.6 + 0.02 * np.random.default_rng(seed).normal(size=counts[-1])
        overs = [OverTargets(values[:count]) for count in counts]
        for level, looks in (("held", len(counts)), ("usual", 1)):
            found = [Look("a", "s", "l", "auc", one.count, one.mean, *one.interval(0.95, looks)) for one in overs]
            at = next((one for one in found if enough([one], {"auc": asked})), found[-1])
            if level == "held":
                held += at.low <= 0.6 <= at.high
            else:
                usual += at.low <= 0.6 <= at.high
    assert held >= 0.94 * audits and held >= usual
