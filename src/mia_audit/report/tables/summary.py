"""Every attack × signal × likelihood on every setting: on the true membership, and on a permuted one (null control)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mia_audit.attacks.persons import PERSON
from mia_audit.report.data.findings import Findings
from mia_audit.report.tables.catalogue import table
from mia_audit.report.tables.columns import (
    ATTACK,
    ATTACK_COLUMNS,
    PARTS,
    SETTING,
    identity,
    interval_column,
    printed,
    setting_columns,
    spread_column,
)
from mia_audit.report.tables.layout import Column, Layout, laid_out
from mia_audit.report.text.formatting import rate

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results


def _summary_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    rates = [name.removesuffix("_mean") for name in frame.columns if name.startswith("tpr_") and name.endswith("_mean")]
    columns = [
        *setting_columns(results.spec.settings),
        *ATTACK_COLUMNS,
        *_unit_columns(frame),
        spread_column("AUC", "auc"),
    ]
    for name in rates:
        columns.append(spread_column(f"TPR at {rate(float(name.removeprefix('tpr_at_fpr_')))}", name, "not resolvable"))
    caption = (
        "Mean ± standard deviation over targets; not resolvable where the pool has too few non-members for the FPR."
    )
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("summary", _summary_layout, long=True)
def summary(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the metrics of every attack on the true membership, over targets."""
    frame = _summarised(results).filter(null_control=False).drop("null_control")
    return frame if PERSON in set(frame["unit"]) else frame.drop("unit", "aggregate")


def _null_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        *ATTACK_COLUMNS,
        *_unit_columns(frame),
        spread_column("AUC", "auc"),
        interval_column("auc_"),
    ]
    caption = f"The same attacks against permuted membership, {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("null_control", _null_layout, long=True)
def null_control(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the AUC of every attack on a permuted membership, and whether its interval contains ½."""
    frame = _summarised(results).filter(null_control=True)
    units = ["unit", "aggregate"] if PERSON in set(frame["unit"]) else []
    null = frame.select(*SETTING, *ATTACK, *units, "targets", *(f"auc_{part}" for part in PARTS))
    return null.with_columns(holds_half=(null["auc_low"] <= 0.5) & (null["auc_high"] >= 0.5))


def _unit_columns(frame: pl.DataFrame) -> list[tuple[Column, Any]]:
    """Return the columns of unit and aggregate, if some scores are those of persons."""
    return [printed("Unit", "unit"), printed("Aggregate", "aggregate")] if "unit" in frame.columns else []


def level(results: Results) -> str:
    """Return how intervals were computed."""
    return f"with {results.spec.confidence * 100:g} % intervals over targets in brackets"


def _summarised(results: Results) -> pl.DataFrame:
    import polars as pl

    frames = [
        summary.select(*(pl.lit(value).alias(name) for name, value in identity(setting).items()), pl.all())
        for setting, summary in zip(results.spec.settings, results.summaries, strict=True)
    ]
    return pl.concat(frames, how="diagonal")
