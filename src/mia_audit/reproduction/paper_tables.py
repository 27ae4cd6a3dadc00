"""A paper's tables in the paper's own layout: every printed number beside the results of audits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.text.formatting import fixed
from mia_audit.reproduction.measured import CellResults, Measured, difference
from mia_audit.reproduction.papers import DATASETS, EXPLAINERS, Key, Paper, Printed, Shape

if TYPE_CHECKING:
    import numpy as np

WORDS = {
    **DATASETS,
    **EXPLAINERS,
    "inf": "∞",
    "threshold": "Thres.",
    "var-lrt": "VAR-LRT",
    "l1-lrt": "L1-LRT",
    "l2-lrt": "L2-LRT",
    "loss-lira": "Loss LiRA",
    "tpr_at_fpr_0.001": "TPR at 0.1 %",
    "tpr_at_fpr_0.01": "TPR at 1 %",
    "auc": "AUC",
    "train_accuracy": "train accuracy",
    "test_accuracy": "test accuracy",
    "train_loss": "train loss",
    "test_loss": "test loss",
    "none": "no DP",
    "ssim": "SSIM",
    "minutes": "minutes",
    "shadow-classifier": "shadow classifier",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "photos": "cats and dogs",
}
"""The paper's words for parts of keys."""

TITLES = {
    "dataset": "Data set",
    "architecture": "Architecture",
    "epsilon": "ε",
    "explainer": "Explanation",
    "attack": "Attack",
    "metric": "Metric",
    "mechanism": "Mechanism",
}

NOTE = (
    "In every cell the printed mean ± standard deviation; `alike` is the paper's procedure on the audit's models (for likelihood "
    "ratios with the authors' read-out, which is no TPR), `exact` the same scores read exactly, `ours` our attack on the same signal."
)


@dataclass(frozen=True)
class Row:
    """A printed cell, the results for it, and the command that trains the models for it."""

    printed: Printed
    results: CellResults
    command: str


def rows(paper: Paper, printed: Sequence[Printed], measured: Measured) -> list[Row]:
    """Return every printed cell with its results."""
    return [Row(cell, measured.results_of(cell.key), command(paper, cell.key.dataset)) for cell in printed]


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


def layout(shape: Shape, rows: Sequence[Row]) -> Layout:
    """Return a table in the paper's layout; a cell that is empty in the paper, or has no results, is a dash."""
    across = list(dict.fromkeys(_parts(row.printed.key, shape.columns) for row in rows))
    down = list(dict.fromkeys(_parts(row.printed.key, shape.rows) for row in rows))
    known = {(_parts(row.printed.key, shape.rows), _parts(row.printed.key, shape.columns)): row for row in rows}
    titles = text(*(TITLES[part] for part in shape.rows))
    columns = [*titles, *(Column(_words(parts[-1:]), _words(parts[:-1])) for parts in across)]
    body: list[list[Cell | str]] = [
        [*(WORDS.get(part, part) for part in first), *(_cell(known.get((first, parts))) for parts in across)]
        for first in down
    ]
    missing = list(dict.fromkeys(row.command for row in rows if not len(row.results.alike)))
    notes = [
        NOTE,
        *([shape.note] if shape.note else []),
        *(f"Cells without `alike` are filled by {one}" for one in missing),
    ]
    return Layout(columns, body, f"{shape.title} ({rows[0].printed.where}).", notes)


def _parts(key: Key, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(getattr(key, name)) for name in names)


def _words(parts: Sequence[str]) -> str:
    return ", ".join(WORDS.get(part, part) for part in parts)


def _cell(row: Row | None) -> Cell:
    if row is None:
        return Cell("")
    printed = "–" if row.printed.mean is None else _spread(row.printed.mean, row.printed.sd)
    notes = []
    for name in ("alike", "exact", "ours"):
        values = getattr(row.results, name)
        if len(values) and (name == "alike" or row.printed.key.attack):
            notes.append(f"{name} {_spread(_mean(values), _sd(values))}")
    return Cell(printed, tuple(notes))


def _spread(mean: float | None, sd: float | None) -> str:
    return "–" if mean is None else fixed(mean, 4) if sd is None else f"{fixed(mean, 4)} ± {fixed(sd, 4)}"


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _sd(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None
