"""Membership risk by group: the strongest attack on every group of records or persons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.persons import unit_of
from mia_audit.report.data.findings import Findings
from mia_audit.report.data.groups import Group, Groups, groups_of, strongest_only
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import ATTACK, SETTING, estimate_cell, identity, parts, parts_schema, rate_cell
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.text.formatting import percent, power, rate, significant, titled

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.findings import Estimate
    from mia_audit.report.data.results import Results

SMALL_P = 1e-3
"""The value below which p-values are written with a power of ten."""


def groups_layout(grouped: Sequence[Groups], confidence: float, several: bool = False) -> Layout:
    """Return a table with a row per setting and group; with `several`, it names data set and architecture too."""
    fpr = grouped[0].fpr if grouped else None
    at = "" if fpr is None else f" at {rate(fpr)}"
    rows = [[_name(one, several), *_cells(group)] for one in grouped for group in one.listed]
    columns = [
        *text("Setting", "Column", "Group"),
        Column("Persons" if grouped and grouped[0].finding.by_person else "Records"),
        Column("AUC"),
        Column("Against all others"),
        Column("p"),
        Column("own", f"TPR{at}, threshold"),
        Column("common", f"TPR{at}, threshold"),
        Column("FPR, common"),
        Column("Test accuracy"),
    ]
    caption = (
        "The strongest attack on every setting, by group. Against all others: the group's AUC minus that of everybody else. Own"
        " threshold: set by the group's own non-members; common: set by all non-members, with the FPR that the group then"
        f" has. The {confidence * 100:g}\u00a0% intervals of AUC and difference hold for all groups of a setting together"
        " (Bonferroni); p is corrected for their number (Holm)."
    )
    return Layout(columns, rows, caption)


def _name(grouped: Groups, several: bool) -> str:
    setting = grouped.finding.setting
    place = f"{setting.place}: " if several else ""
    return f"{place}{titled(setting)}"


def _cells(group: Group) -> list[Cell | str]:
    return [
        group.column,
        group.label,
        str(group.units),
        estimate_cell(group.auc),
        estimate_cell(group.difference),
        _p(group.p),
        _rate(group.own, "not resolvable"),
        _rate(group.common, "–"),
        percent(group.common_fpr.mean),
        percent(group.test_accuracy),
    ]


def _p(value: float) -> str:
    if math.isnan(value):
        return "–"
    return significant(value, 2) if value >= SMALL_P else power(value) if value > 0 else "0"


def _rate(value: Estimate, missing: str) -> Cell:
    return Cell(missing) if math.isnan(value.mean) else rate_cell(value)


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    return groups_layout(strongest_only(groups_of(results, findings)), findings.confidence, several=True)


@table("groups", _layout, condition=lambda spec: any(one.grouped for one in spec.settings), long=True)
def groups(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the strongest attack on every channel by group, each compared with everybody else."""
    rows: list[dict[str, Any]] = [
        {
            **identity(grouped.finding.setting),
            "unit": unit_of(grouped.finding.aggregate),
            "column": group.column,
            "group": group.label,
            "units": group.units,
            **dict(zip(ATTACK, grouped.leak.key, strict=True)),
            "fpr": grouped.fpr,
            **parts("auc", group.auc),
            **parts("difference", group.difference),
            "p_holm": _none(group.p),
            **parts("tpr_at_fpr", group.own),
            **parts("common_tpr", group.common),
            **parts("common_fpr", group.common_fpr),
            "train_accuracy": _none(group.train_accuracy),
            "test_accuracy": _none(group.test_accuracy),
        }
        for grouped in groups_of(results, findings)
        for group in grouped.listed
    ]
    schema: dict[str, type] = SETTING | {"unit": str, "column": str, "group": str, "units": int}
    schema |= ATTACK | {"fpr": float} | parts_schema("auc", "difference") | {"p_holm": float}
    schema |= parts_schema("tpr_at_fpr", "common_tpr", "common_fpr")
    return frame_of(schema | {"train_accuracy": float, "test_accuracy": float}, rows)


def _none(value: float) -> float | None:
    return None if math.isnan(value) else value
