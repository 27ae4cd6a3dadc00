"""Sentences about the risk of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.evaluation.groups import LEAST
from mia_audit.report.text.formatting import count, fixed, interval, joined, percent, rate, titled

if TYPE_CHECKING:
    from mia_audit.report.data.groups import Group, Groups


NAMED = 3
"""Largest number of groups that a sentence names."""


def risk_sentences(grouped: Groups, confidence: float) -> str:
    """Say which groups of a setting the attack recognises better than everybody else, and which worse."""
    different = [one for one in grouped.listed if one.difference and one.p <= 1 - confidence]
    higher = sorted((one for one in different if _gap(one) > 0), key=lambda one: -_gap(one))
    lower = sorted((one for one in different if _gap(one) < 0), key=_gap)
    head = f"{titled(grouped.finding.setting)}: "
    if not different:
        return (
            f"{head}no group differs from everybody else beyond chance ({len(grouped.listed)} groups,"
            f" {confidence * 100:g}\u00a0% level over all of them)."
        )
    parts = []
    if higher:
        more = f", and {len(higher) - NAMED} more groups" if len(higher) > NAMED else ""
        parts.append(
            f"the risk is highest for {joined([_described(one, grouped.fpr) for one in higher[:NAMED]])}{more}"
        )
    if lower:
        parts.append(f"{'it is ' if higher else 'the risk is '}lowest for {_described(lower[0], grouped.fpr)}")
    return f"{head}{'; '.join(parts)}."


def _gap(group: Group) -> float:
    return group.difference.mean if group.difference else math.nan


def _described(group: Group, fpr: float | None) -> str:
    difference = group.difference
    text = f"{group.column} {group.label} (AUC {fixed(group.auc.mean)}"
    if difference:
        sign = "+" if difference.mean > 0 else ""
        text += f", {sign}{fixed(difference.mean)} against all others, {interval(difference)}"
    if fpr is not None and not math.isnan(group.common.mean):
        text += f"; {percent(group.common.mean)} recognised at the threshold where {rate(fpr)} of all are false alarms"
    return f"{text})"


def small_sentence(grouped: Sequence[Groups]) -> str:
    """Say how many groups are not shown because they are small, and why; empty if there are none."""
    lost = {column: number for one in grouped for column, number in one.small.items() if number}
    if not lost:
        return ""
    unit = "persons" if any(one.finding.by_person for one in grouped) else "records"
    columns = joined([f"{count(number, 'group')} of {column}" for column, number in lost.items()])
    return (
        f"Not shown, having fewer than {LEAST} {unit}: {columns}. Their intervals would be too wide to tell them from others, and a"
        f" row about so few {unit} would reveal something about each of them."
    )
