"""The page's tables of attacks: the answer's bars, all attacks, and the null control."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mia_audit.report.data.findings import Finding, Findings, Leak, reference
from mia_audit.report.tables.columns import estimate_cell
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.tables.settings import present_channels, setting_name
from mia_audit.report.text.answer import TITLES
from mia_audit.report.text.formatting import fixed, interval, percent, percent_interval, plus_minus, significant, titled
from mia_audit.signals.name import read_signal


def answer_table(group: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the answer's rows: for each setting, the strongest attack on each channel, as a number and a bar, and the accuracy."""
    present, bounds = present_channels(group), _bounds(group)
    return [_row(finding, present, bounds) for finding in group]


def _bounds(group: Sequence[Finding]) -> tuple[float, float]:
    estimates = [leak.auc_estimate for one in group for leak in one.strongest.values()]
    values = [0.5, *(value for one in estimates for value in (one.mean, one.low, one.high) if not math.isnan(value))]
    margin = 0.06 * (max(values) - min(values)) or 0.01
    return min(values) - margin, max(values) + margin


def _row(finding: Finding, present: Sequence[str], bounds: tuple[float, float]) -> dict[str, Any]:
    accuracy = finding.test_accuracy
    return {
        "name": titled(finding.setting),
        "cells": [_cell(channel, finding.strongest.get(channel), bounds) for channel in present],
        "accuracy": percent(accuracy.mean) if accuracy else "",
        "accuracy_interval": percent_interval(accuracy) if accuracy else "",
    }


def _cell(channel: str, leak: Leak | None, bounds: tuple[float, float]) -> dict[str, Any]:
    cell: dict[str, Any] = {"channel": TITLES[channel], "kind": channel, "known": leak is not None}
    if leak is None:
        return cell
    auc = leak.auc_estimate
    low, high = (auc.mean if math.isnan(value) else value for value in (auc.low, auc.high))
    places = {"chance": 0.5, "low": low, "mean": auc.mean, "high": high}
    cell |= {name: f"{100 * (value - bounds[0]) / (bounds[1] - bounds[0]):.1f}" for name, value in places.items()}
    return cell | {"auc": fixed(auc.mean), "interval": interval(auc), "leaks": leak.beats_guessing}


def attacks_layout(group: Sequence[Finding]) -> Layout:
    """Return a table with a row per attack and signal, strongest first in the reference setting."""
    by_setting = [{leak.key: leak for attacks in finding.leaks.values() for leak in attacks} for finding in group]
    first = by_setting[group.index(reference(group) or group[0])]
    keys = list(dict.fromkeys(key for attacks in (first, *by_setting) for key in attacks))
    keys.sort(key=lambda key: -first[key].auc.mean() if key in first else 0.0)
    rows: list[list[Cell | str]] = []
    for key in keys:
        values = [plus_minus(attacks[key].auc_estimate) if key in attacks else "–" for attacks in by_setting]
        rows.append([key[0], read_signal(key[1]).label, *values])
    columns = [
        *text("Attack"),
        Column("Signal", number=False, wide=True),
        *(Column(titled(one.setting)) for one in group),
    ]
    caption = (
        "Mean AUC ± standard deviation over targets, for the headline's likelihood; all likelihoods and false-positive rates are "
        "in tables/summary."
    )
    return Layout(columns, rows, caption)


def null_layout(findings: Findings, level: str) -> Layout | None:
    """Return the table of the strongest attacks' null control; None if there is none."""
    rows: list[list[Cell | str]] = [
        [
            setting_name(finding, findings),
            TITLES[channel].lower(),
            f"{leak.attack} on {read_signal(leak.signal).label}",
            estimate_cell(leak.auc_estimate),
            estimate_cell(null),
            f"no, by {significant(max(null.low - 0.5, 0.5 - null.high), 1)}" if null.excludes(0.5) else "yes",
        ]
        for finding in findings.settings
        if finding.null
        for channel, null in finding.null.headline.items()
        for leak in [finding.strongest[channel]]
    ]
    columns = [
        *text("Setting", "What is attacked"),
        Column("Attack", number=False, wide=True),
        Column("True membership"),
        Column("Null control"),
        *text("Contains 0.5"),
    ]
    caption = (
        f"The strongest attacks on the true membership and on a shuffled one: AUC, {level} interval. Both intervals allow for the models "
        "that targets share as shadow models; the null control's is wider because all of its spread is noise."
    )
    return Layout(columns, rows, caption) if rows else None
