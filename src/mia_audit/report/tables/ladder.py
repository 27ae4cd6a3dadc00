"""The ladder: the results with fewer models, and the reason to continue or stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.report.tables.layout import Cell, Column, Layout, laid_out
from mia_audit.report.text.formatting import count, fixed, rate

if TYPE_CHECKING:
    from mia_audit.report.data.results import Results

SCREEN = (
    "A screen attacks the first model only, alone or with one or two others as references: a positive result is a leak, "
    "a negative one is no evidence of safety."
)
HELD = (
    "The intervals of larger rungs are wider than the usual ones: they hold at all rungs together, so that the audit could stop "
    "at any of them."
)
PRICES = "The cost of the next rung is estimated from the time of past jobs, in seconds of one process."


def ladder_layout(results: Results) -> Layout | None:
    """Return the table for the page, with a row per rung, attack and metric; None without a ladder."""
    rungs = results.rungs
    if rungs is None:
        return None
    columns = [
        (Column("Models"), lambda row: str(row["models"])),
        (Column("Setting", number=False), lambda row: row["setting"]),
        (Column("Attack", number=False), _attack),
        (Column("Metric", number=False), _metric),
        (Column("Value"), _value),
        (Column("Requested"), lambda row: "–" if row["requested"] is None else f"± {row['requested']:g}"),
        (Column("Conclusion", number=False, wide=True), lambda row: row["decision"] or "–"),
        (Column("Next rung", number=False), _next),
    ]
    rows = sorted(rungs.iter_rows(named=True), key=lambda row: row["models"])
    return laid_out(columns, rows, f"{SCREEN} {HELD} {PRICES}")


def _attack(row: Mapping[str, Any]) -> Cell:
    reads = f"{row['signal']}, {row['likelihood']}" if row["likelihood"] != "none" else row["signal"]
    scored = "" if row["scored"] in (None, 1.0) else f"of {row['scored']:.0%} of the records"
    return Cell(row["attack"], (f"on {reads}", scored))


def _metric(row: Mapping[str, Any]) -> str:
    name = str(row["metric"])
    return f"TPR at {rate(float(name.removeprefix('tpr_at_')))}" if name.startswith("tpr_at_") else "AUC"


def _value(row: Mapping[str, Any]) -> Cell:
    if row["mean"] is None:
        return Cell("–")
    known = None not in (row["low"], row["high"])
    return Cell(fixed(row["mean"]), (f"{fixed(row['low'])} to {fixed(row['high'])}",) if known else ())


def _next(row: Mapping[str, Any]) -> str:
    if row["more"] is None:
        return "–"
    price = "" if row["seconds"] is None else f", {row['seconds']:,.0f} s"
    return f"{count(row['more'], 'more model')}{price}"
