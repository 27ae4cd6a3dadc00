"""Is one attack better than another? Both met the same targets, so their difference is tested target by target."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from mia_audit.errors import UserError
from mia_audit.evaluation.summary import summarised


def compare(
    metrics: pl.DataFrame, first: tuple[str, str, str], second: tuple[str, str, str], confidence: float = 0.95
) -> pl.DataFrame:
    """Compare two attacks, each (attack, signal, likelihood), by a paired t-test over the targets that both have.

    A row per metric: `targets`, the mean `difference` first − second, its standard deviation, Student-t interval
    `low`, `high`, `t` and the two-sided `p`. Metrics that are null for a target leave it out; fewer than two targets
    are a UserError.
    """
    from scipy.special import stdtr, stdtrit

    left, right = (_one(metrics, attack) for attack in (first, second))
    both = left.join(right, on="target", suffix="_second", maintain_order="left")
    rows: list[dict[str, Any]] = []
    for name in summarised(metrics):
        gap = (both[name] - both[f"{name}_second"]).drop_nulls().to_numpy()
        if len(gap) < 2:
            if name == "auc":
                raise UserError(
                    f"{' '.join(first)} and {' '.join(second)} share {len(gap)} targets; a paired test needs two"
                )
            continue
        mean, sd, freedom = float(gap.mean()), float(gap.std(ddof=1)), len(gap) - 1
        error = sd / np.sqrt(len(gap))
        t = mean / error if error else np.inf * np.sign(mean) if mean else 0.0
        half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
        rows.append(
            {
                "metric": name,
                "targets": len(gap),
                "difference": mean,
                "sd": sd,
                "low": mean - half,
                "high": mean + half,
                "t": float(t),
                "p": float(2 * stdtr(freedom, -abs(t))),
            }
        )
    return pl.DataFrame(rows)


def _one(metrics: pl.DataFrame, attack: tuple[str, str, str]) -> pl.DataFrame:
    found = metrics.filter(~pl.col("null_control"))
    for name, value in zip(("attack", "signal", "likelihood"), attack, strict=True):
        found = found.filter(pl.col(name) == value)
    if found.is_empty():
        known = metrics.filter(~pl.col("null_control")).select(
            pl.concat_str("attack", "signal", "likelihood", separator=" ")
        )
        raise UserError(
            f"no metrics of {' '.join(attack)}; there are: {'; '.join(known.to_series().unique(maintain_order=True))}"
        )
    return found
