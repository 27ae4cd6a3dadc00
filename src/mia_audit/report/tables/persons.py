"""The strongest attacks on persons and on their records, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.persons import HEADLINE, NONE
from mia_audit.report.data.findings import Finding, Findings, Leak
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import ATTACK, SETTING, identity, leak_cells, parts, parts_schema
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.text.formatting import rate, titled
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results

WORDS = {NONE: "Records", "sum": "Persons, sum", "mean": "Persons, mean", "max": "Persons, largest"}
"""Headings of the aggregates."""


def by_aggregate(finding: Finding) -> dict[str, dict[str, list[Leak]]]:
    """Return a setting's attacks by aggregate, records first, then by channel."""
    leaks = {finding.aggregate: finding.leaks} | finding.others
    order = [NONE, HEADLINE, *(name for name in leaks if name not in (NONE, HEADLINE))]
    return {name: leaks[name] for name in order if name in leaks}


def persons_layout(group: Sequence[Finding], fpr: float | None) -> Layout:
    """Return a table with a row per setting and channel: AUC and TPR, on records and on persons, of the attack that is strongest on persons."""
    tpr = "TPR" if fpr is None else f"TPR at {rate(fpr)}"
    rows: list[list[Cell | str]] = []
    for finding in group:
        by_name = by_aggregate(finding)
        for channel, leak in _different(finding).items():
            same = {name: _same(leaks.get(channel, ()), leak) for name, leaks in by_name.items()}
            cells = [cell for name in WORDS for cell in leak_cells(same.get(name), fpr)]
            described = f"{leak.attack} on {read_signal(leak.signal).label}"
            rows.append([titled(finding.setting), described, *cells])
    columns = [
        *text("Setting"),
        Column("Attack", number=False, wide=True),
        *(Column(title, group_name) for group_name in WORDS.values() for title in ("AUC", tpr)),
    ]
    caption = (
        "The attack that is strongest on persons: its results on single records and on persons, whose scores are the sum, the mean or the"
        " largest of their records' scores. Membership was drawn by person in all columns."
    )
    return Layout(columns, rows, caption)


def _different(finding: Finding) -> dict[str, Leak]:
    """Return the strongest attack of every channel, omitting an attack that is already listed for another channel."""
    first = {leak.key: channel for channel, leak in reversed(finding.strongest.items())}
    return {channel: finding.strongest[channel] for channel in finding.strongest if channel in first.values()}


def _same(leaks: Sequence[Leak], wanted: Leak) -> Leak | None:
    return next((leak for leak in leaks if leak.key == wanted.key), None)


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    return persons_layout([one for one in findings.settings if one.by_person], findings.fpr)


@table("persons", _layout, condition=lambda spec: any(one.by_person for one in spec.settings))
def persons(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the strongest attack on every channel by each aggregate (`none` for records)."""
    rows: list[dict[str, Any]] = [
        {
            **identity(finding.setting),
            "unit": "record" if aggregate == NONE else "person",
            "aggregate": aggregate,
            "channel": channel,
            **dict(zip(ATTACK, leaks[0].key, strict=True)),
            "fpr": findings.fpr,
            **parts("auc", leaks[0].auc_estimate),
            **parts("tpr_at_fpr", leaks[0].tpr_estimate),
        }
        for finding in findings.settings
        if finding.by_person
        for aggregate, channels in by_aggregate(finding).items()
        for channel, leaks in channels.items()
    ]
    schema = SETTING | dict.fromkeys(("unit", "aggregate", "channel"), str) | ATTACK | {"fpr": float}
    return frame_of(schema | parts_schema("auc", "tpr_at_fpr"), rows)
