"""How many models: results with fewer of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Findings
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import ATTACK, ATTACK_COLUMNS, SETTING, identity, setting_columns
from mia_audit.report.tables.layout import Column, Layout, laid_out
from mia_audit.report.text.formatting import fixed, rate

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results

LITTLE = 0.005
"""AUC and TPR are taken to have levelled off if using all other models changes each by less than this."""

CAPTION = (
    "The strongest attack on every setting with fewer other models per target, in random groups: means over the same targets. "
    f"*: with this many or more, using all other models changes AUC and TPR by less than {LITTLE:g}."
)


def level(rows: Sequence[Mapping[str, Any]], tpr: str | None) -> int | None:
    """Return the number of other models beyond which further ones add little to AUC and TPR; None if there is no such number.

    `rows` are of one attack and likelihood, in the order of their numbers (`evaluation.model_counts.by_count`).
    """
    number = None
    for row in reversed(rows[:-1]):
        gaps = [row["auc_more"], row.get(f"{tpr}_more", 0.0) if tpr else 0.0]
        if any(abs(gap) >= LITTLE for gap in gaps):
            break
        number = int(row["others"])
    return number


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    name = f"TPR at {rate(findings.fpr)}" if findings.fpr is not None else "TPR"
    columns = [
        *setting_columns(results.spec.settings),
        *ATTACK_COLUMNS,
        (Column("Other models"), lambda row: f"{row['others']}{'*' if row['level'] else ''}"),
        (Column("AUC"), lambda row: _cell(row["auc"])),
        (Column("All add"), lambda row: _cell(row["auc_more"])),
        (Column(name), lambda row: _cell(row["tpr"])),
        (Column("All add"), lambda row: _cell(row["tpr_more"])),
    ]
    return laid_out(columns, frame.iter_rows(named=True), CAPTION)


def _cell(value: float | None) -> str:
    return "–" if value is None else fixed(value)


@table("models", _layout, long=True)
def models(results: Results, findings: Findings) -> pl.DataFrame:
    """Return mean AUC and TPR by likelihood and number of other models, and the gain from using all other models.

    `tpr` is at the report's FPR, null if it is not resolvable; `level` marks the number at which both have levelled off.
    """
    tpr = f"tpr_at_fpr_{findings.fpr:g}" if findings.fpr is not None else None
    rows = []
    for setting, counted in zip(results.spec.settings, results.model_counts, strict=True):
        for likelihood in dict.fromkeys(row["likelihood"] for row in counted):
            alike = [row for row in counted if row["likelihood"] == likelihood]
            rows += [
                identity(setting)
                | {name: row[name] for name in (*ATTACK, "others")}
                | {"auc": row["auc_mean"], "auc_more": row["auc_more"], "auc_more_error": row["auc_more_error"]}
                | {f"tpr{part}": row.get(f"{tpr}{source}") for part, source in PARTS.items()}
                | {"level": row["others"] == level(alike, tpr)}
                for row in alike
            ]
    values = dict.fromkeys(("auc", "auc_more", "auc_more_error", "tpr", "tpr_more", "tpr_more_error"), float)
    return frame_of(SETTING | ATTACK | {"others": int} | values | {"level": bool}, rows)


PARTS = {"": "_mean", "_more": "_more", "_more_error": "_more_error"}
