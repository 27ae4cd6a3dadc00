"""Paired tests of whether one attack is better than another, by their differences on the targets that both attacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from mia_audit.attacks.persons import NONE
from mia_audit.errors import UserError
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.summary import of_aggregate, summarised


def compare(
    metrics: pl.DataFrame,
    first: tuple[str, str, str],
    second: tuple[str, str, str],
    confidence: float = 0.95,
    aggregate: str = NONE,
    margin: float | None = None,
    against: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Compare two attacks, each (attack, signal, likelihood), by a paired test over the targets that both have.

    `aggregate` says how records' scores are aggregated to persons'; `none` compares attacks on records. If `against` is
    given, it is the metrics table of another setting, from which the second attack is taken. Return a row per metric
    with the number of `targets`, the mean `difference` first − second, its standard deviation, the interval `low`,
    `high` of `OverTargets`, `t` and the two-sided `p`; with a `margin` also `p_equivalence` of
    `OverTargets.equivalence` within it. A target for which a metric is null is left out of that metric; UserError for
    fewer than two targets, or other training sets in `against`.
    """
    metrics = of_aggregate(metrics, aggregate)
    others = metrics if against is None else of_aggregate(against, aggregate)
    left, right = _one(metrics, first), _one(others, second)
    if against is not None:
        _check_same_sets(left, right)
    rows: list[dict[str, Any]] = []
    for name in (name for name in summarised(metrics) if name in right.columns):
        gap = paired(left, right, name)
        if gap.count < 2:
            if name == "auc":
                raise UserError(
                    f"{' '.join(first)} and {' '.join(second)} share {gap.count} targets; a paired test needs two"
                )
            continue
        low, high = gap.interval(confidence)
        rows.append(
            {
                "metric": name,
                "targets": gap.count,
                "difference": gap.mean,
                "sd": gap.sd,
                "low": low,
                "high": high,
                "t": gap.t(),
                "p": gap.p_value(),
                **({} if margin is None else {"margin": margin, "p_equivalence": gap.equivalence(margin)}),
            }
        )
    return pl.DataFrame(rows)


def paired(first: pl.DataFrame, second: pl.DataFrame, name: str) -> OverTargets:
    """Return the difference of a metric over the targets that two attacks, or two settings, share."""
    known = [rows.filter(rows[name].is_not_null()).sort("target") for rows in (first, second)]
    targets = [rows["target"].to_numpy() for rows in known]
    _, left, right = np.intersect1d(targets[0], targets[1], return_indices=True)
    return OverTargets.of(known[0], name).only(left).minus(OverTargets.of(known[1], name).only(right))


def _check_same_sets(left: pl.DataFrame, right: pl.DataFrame) -> None:
    """Raise UserError if a shared target has other numbers of members or non-members, and so another training set."""
    both = left.join(right, on="target", suffix="_against")
    for name in ("members", "non_members"):
        other = both.filter(pl.col(name) != pl.col(f"{name}_against"))
        if not other.is_empty():
            target, here, there = other.select("target", name, f"{name}_against").row(0)
            raise UserError(
                f"--against: target {target} has {there} {name.replace('_', '-')} there and {here} here; a paired test needs the same training"
                " sets in both settings"
            )


def _one(metrics: pl.DataFrame, attack: tuple[str, str, str]) -> pl.DataFrame:
    chosen = metrics.filter(~pl.col("null_control"))
    for name, value in zip(("attack", "signal", "likelihood"), attack, strict=True):
        chosen = chosen.filter(pl.col(name) == value)
    if chosen.is_empty():
        known = metrics.filter(~pl.col("null_control")).select(
            pl.concat_str("attack", "signal", "likelihood", separator=" ")
        )
        raise UserError(
            f"no metrics of {' '.join(attack)}; there are: {'; '.join(known.to_series().unique(maintain_order=True))}"
        )
    return chosen
