"""Metrics per target summarised over targets: mean, standard deviation and intervals."""

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from mia_audit.attacks.persons import NONE, PERSON, RECORD
from mia_audit.evaluation.intervals import WITHOUT, OverTargets

KEYS = ("attack", "signal", "likelihood", "null_control", "unit", "aggregate")
"""Columns that identify an attack on a setting."""


def with_units(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return a metrics table with the columns unit and aggregate; a table that lacks them has the metrics of records."""
    absent = {"unit": RECORD, "aggregate": NONE}
    return metrics.with_columns(
        pl.lit(value).alias(name) for name, value in absent.items() if name not in metrics.columns
    )


def of_aggregate(metrics: pl.DataFrame, aggregate: str) -> pl.DataFrame:
    """Return the rows of one aggregate: `none` for records."""
    return with_units(metrics).filter(pl.col("aggregate") == aggregate)


def of_drawn_unit(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of persons if there are any, else those of records: the unit for which membership was drawn.

    These units are independent of each other. Records of one person are not independent, so no bound may count them as
    trials.
    """
    metrics = with_units(metrics)
    persons = metrics.filter(pl.col("unit") == PERSON)
    return persons if len(persons) else metrics


def summarised(metrics: pl.DataFrame) -> list[str]:
    """List the metrics to summarise: `auc`, `balanced_accuracy` and every `tpr_at_fpr_{x}`, without their intervals' columns."""
    names = ["auc", "balanced_accuracy", *(name for name in metrics.columns if name.startswith("tpr_at_fpr_"))]
    return [name for name in names if not name.endswith(("_low", "_high", WITHOUT))]


def summarise(metrics: pl.DataFrame, confidence: float = 0.95) -> pl.DataFrame:
    """Summarise `metrics` (one row per attack × signal × likelihood × null_control × target) over targets.

    Return a row per attack × signal × likelihood × null_control, in the order of their first appearance. It has the
    number of `targets` and the means of `members`, `non_members` and `unscored`. Every metric m of `summarised` has the
    columns m_mean and m_sd (n − 1), the interval of the mean, m_low and m_high, and the prediction interval of a
    further target, m_future_low and m_future_high. All are clipped to [0, 1] (`OverTargets`). `p_above_guessing` is the
    one-sided p of an AUC above ½. A metric that cannot be resolved for some target is null. For a single target the sd
    is null and the interval is the one over its records. p is null for records if membership was drawn by person.
    """
    names = summarised(metrics)
    metrics = with_units(metrics)
    drawn = set(of_drawn_unit(metrics)["unit"])
    rows = []
    for key, group in metrics.group_by(*KEYS, maintain_order=True):
        over = {name: OverTargets.of(group, name, confidence) for name in names}
        rows.append(
            dict(zip(KEYS, key, strict=True))
            | {"targets": len(group)}
            | {name: group[name].mean() for name in ("members", "non_members", "unscored")}
            | {f"{name}_{part}": value for name in names for part, value in _parts(over[name], len(group), confidence)}
            | {"p_above_guessing": _known(over["auc"].above_guessing()) if key[4] in drawn else None}
        )
    kinds: dict[str, Any] = dict.fromkeys(KEYS, pl.String) | {"null_control": pl.Boolean, "targets": pl.Int32}
    columns = ["members", "non_members", "unscored", *(f"{name}_{part}" for name in names for part in PARTS)]
    return pl.DataFrame(rows, schema=kinds | dict.fromkeys([*columns, "p_above_guessing"], pl.Float64))


PARTS = ("mean", "sd", "low", "high", "future_low", "future_high")


def _parts(over: OverTargets, targets: int, confidence: float) -> Iterator[tuple[str, float | None]]:
    """Yield the columns of a metric; all are null if some target does not resolve it."""
    if over.count < targets:
        yield from dict.fromkeys(PARTS).items()
        return
    ends = (*over.interval(confidence), *over.future(confidence))
    yield from zip(PARTS, (over.mean, _known(over.sd), *(_cut(end) for end in ends)), strict=True)


def _cut(value: float) -> float | None:
    return None if math.isnan(value) else min(max(value, 0.0), 1.0)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
