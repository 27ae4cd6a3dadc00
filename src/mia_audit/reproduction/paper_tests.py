"""A paper's tests of one attack against another, beside paired tests that allow for shadow models shared by targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from mia_audit.report.tables.layout import Cell, Layout, text
from mia_audit.report.text.formatting import fixed
from mia_audit.reproduction.measured import Measured
from mia_audit.reproduction.paper_tables import WORDS, command
from mia_audit.reproduction.papers import Key, Paper, printed_rows

if TYPE_CHECKING:
    from mia_audit.evaluation.intervals import OverTargets

ATTACK = "var-lrt"
"""The attack that the paper compares with the threshold attack."""

NOTE = (
    "Printed: t and p of two-sample tests, which take targets for independent. Here: differences over the same targets, both read "
    "exactly, with intervals and p that count the shadow models that targets share (docs/data.md)."
)


@dataclass(frozen=True)
class PrintedTest:
    """A printed two-sample test of VAR-LRT against the threshold: its t and its p."""

    table: str
    where: str
    key: Key
    t: float
    p: float


def printed_tests(name: str) -> list[PrintedTest]:
    """Return the printed tests of a paper, in the order of its table."""
    return [
        PrintedTest(
            row["table"],
            row["where"],
            Key(row["dataset"], row["architecture"], "none", "inf", row["explainer"], ATTACK, row["metric"]),
            float(row["t"]),
            float(row["p"]),
        )
        for row in printed_rows(f"{name}_tests")
    ]


def frame(paper: Paper, tests: Sequence[PrintedTest], measured: Measured, confidence: float = 0.95) -> pl.DataFrame:
    """Return a row per printed test: `exact` is for the paper's score, `ours` for our attack, each minus the threshold attack."""
    lines = []
    for test in tests:
        key = test.key
        line: dict[str, Any] = {"table": test.table, "where": test.where}
        line |= {name: getattr(key, name) for name in ("dataset", "architecture", "explainer", "metric")}
        line |= {"printed_t": test.t, "printed_p": test.p}
        exact, ours = measured.over_threshold(key)
        for name, difference in (("exact", exact), ("ours", ours)):
            line |= _parts(name, difference, confidence)
        line |= {"targets": None if exact is None else exact.count}
        lines.append(line | {"command": "" if exact else command(paper, key.dataset)})
    words = ("table", "where", "dataset", "architecture", "explainer", "metric", "command")
    kinds: dict[str, Any] = {name: pl.String if name in words else pl.Float64 for name in lines[0]}
    return pl.DataFrame(lines, schema=kinds | {"targets": pl.Int32}).with_columns(
        pl.col(name).fill_nan(None) for name, kind in kinds.items() if kind == pl.Float64 and name != "targets"
    )


def layout(table: pl.DataFrame) -> Layout:
    """Return a table with a row per test."""
    columns = text("Explanation", "Metric", "Data set", "printed t", "printed p", "exact", "p", "ours", "p")
    rows: list[list[Cell | str]] = [
        [
            *(WORDS.get(row[name], row[name]) for name in ("explainer", "metric", "dataset")),
            f"{row['printed_t']:g}",
            f"{row['printed_p']:.2g}",
            *(cell for name in ("exact", "ours") for cell in (_difference(row, name), _p(row[f"{name}_p"]))),
        ]
        for row in table.iter_rows(named=True)
    ]
    missing = [
        f"Rows without results are filled by {one}" for one in table["command"].unique(maintain_order=True) if one
    ]
    caption = f"VAR-LRT less the thresholding attack ({table['where'][0]})."
    return Layout(columns, rows, caption, [NOTE, *missing])


def _parts(name: str, difference: OverTargets | None, confidence: float) -> dict[str, float]:
    values = (math.nan,) * 5
    if difference is not None:
        values = (difference.mean, *difference.interval(confidence), difference.t(), difference.p_value())
    return dict(zip((f"{name}_{part}" for part in ("difference", "low", "high", "t", "p")), values, strict=True))


def _difference(row: dict[str, Any], name: str) -> Cell:
    if row[f"{name}_difference"] is None:
        return Cell("–")
    interval = f"[{fixed(row[f'{name}_low'], 4)}, {fixed(row[f'{name}_high'], 4)}]"
    return Cell(fixed(row[f"{name}_difference"], 4), (interval,))


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"
