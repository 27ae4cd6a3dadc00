"""The paired difference of a metric between two attacks or two settings, for the benchmarks."""

import numpy as np
import polars as pl

from mia_audit.evaluation.intervals import OverTargets


def paired(first: pl.DataFrame, second: pl.DataFrame, name: str) -> OverTargets:
    """Return the difference of a metric over the targets that two attacks, or two settings, share."""
    known = [rows.filter(rows[name].is_not_null()).sort("target") for rows in (first, second)]
    targets = [rows["target"].to_numpy() for rows in known]
    _, left, right = np.intersect1d(targets[0], targets[1], return_indices=True)
    return (
        OverTargets.from_metrics(known[0], name).only(left).minus(OverTargets.from_metrics(known[1], name).only(right))
    )
