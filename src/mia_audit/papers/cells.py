"""A paper's tables: every printed number beside the results of audits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from mia_audit.papers.measured import CellResults, Measured, difference
from mia_audit.papers.printed import Paper, Printed

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Row:
    """A printed cell, the results for it, and the command that trains the models for it."""

    printed: Printed
    results: CellResults
    command: str


def rows(paper: Paper, printed: Sequence[Printed], measured: Measured) -> list[Row]:
    """Return every printed cell with its results."""
    return [Row(cell, measured.results_of(cell), command(paper, cell.key.dataset)) for cell in printed]


def command(paper: Paper, dataset: str) -> str:
    """Return the command that trains and attacks the models for a data set's cells."""
    return f"snakemake --cores all --configfile {paper.configs[dataset]}"


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return a row per printed cell; `difference` is `alike` minus the printed number, with its interval, and `command` computes missing results."""
    lines = []
    for row in rows:
        gap, low, high = difference(row.results.alike, row.printed)
        line: dict[str, Any] = {"table": row.printed.table, "where": row.printed.where} | asdict(row.printed.key)
        line |= {"printed_mean": row.printed.mean, "printed_sd": row.printed.sd, "printed_models": row.printed.models}
        for name in ("alike", "exact", "ours"):
            values = getattr(row.results, name)
            line |= {f"{name}_mean": _mean(values), f"{name}_sd": _sd(values)}
        known = len(row.results.alike) > 0
        line |= {"our_attack": row.results.our_attack, "models": len(row.results.alike) or None}
        line |= {"difference": gap, "difference_low": low, "difference_high": high}
        lines.append(line | {"command": "" if known else row.command})
    numbers = [name for name in lines[0] if name.endswith(("_mean", "_sd", "_low", "_high")) or name == "difference"]
    counts = dict.fromkeys(("printed_models", "models"), pl.Int32)
    kinds: dict[str, Any] = dict.fromkeys(lines[0], pl.String) | dict.fromkeys(numbers, pl.Float64) | counts
    return pl.DataFrame(lines, schema=kinds).with_columns(pl.col(numbers).fill_nan(None))


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _sd(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None
