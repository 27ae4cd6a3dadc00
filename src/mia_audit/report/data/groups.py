"""Membership risk by group: the strongest attack on each group of records or persons, compared with all others.

The bound on ε from canaries in one training of a setting, as the workflow wrote it (docs/how-to/canaries.md).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.report.data.findings import Estimate, Finding, Findings, Leak, estimate_over

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.evaluation.intervals import OverTargets
    from mia_audit.report.data.results import Results

KEY = ("attack", "signal", "likelihood", "aggregate")
UNKNOWN = Estimate(math.nan, math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True)
class Group:
    """The results of one attack on one group; the intervals of AUC and difference hold jointly for all groups of the setting (Bonferroni)."""

    column: str
    label: str
    units: int
    """Number of audited records, or persons, in the group."""
    auc: Estimate
    difference: Estimate | None
    """AUC of the group minus that of everybody else; None if nobody else is left for comparison."""
    p: float
    """p-value of no difference, two-sided and corrected for all groups of the setting by Holm's method; NaN where unknown."""
    own: Estimate
    """TPR at the group's own threshold; NaN where its non-members are too few for the FPR."""
    common: Estimate
    """TPR at the common threshold, at which the FPR over all records is `Groups.fpr`."""
    common_fpr: Estimate
    """The group's FPR at the common threshold."""
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Groups:
    """All groups of a setting under one attack, and how many of every column were too small."""

    finding: Finding
    leak: Leak
    fpr: float | None
    """The smallest FPR that most groups of the audit resolve at their own thresholds; the headline's if there is none."""
    listed: Sequence[Group]
    small: Mapping[str, int]
    highest: Estimate | None
    """The largest of the groups' differences, after its selection among them; None if none is known."""


def groups_of(results: Results, findings: Findings) -> list[Groups]:
    """Return the groups of every setting that has any, under the strongest attack on each channel."""
    settings = [finding for finding in findings.settings if finding.setting.grouped]
    frames = {finding.setting.path: results.groups(finding.setting) for finding in settings}
    fpr = _resolved([frame for frame, _ in frames.values()], findings.fpr)
    return [
        grouped
        for finding in settings
        for leak in finding.strongest.values()
        if (grouped := _groups(*frames[finding.setting.path], finding, leak, fpr, findings.confidence)).listed
    ]


def _resolved(frames: Sequence[pl.DataFrame], headline: float | None) -> float | None:
    """Return the smallest FPR at which most groups have a TPR at their own threshold."""
    from mia_audit.report.data.results import fpr_columns

    values: dict[float, list[pl.Series]] = {}
    for frame in frames:
        for fpr, name in fpr_columns(frame).items():
            values.setdefault(fpr, []).append(frame[name])
    unknown = {fpr: sum(one.null_count() for one in several) for fpr, several in values.items()}
    resolved = [fpr for fpr, several in values.items() if 2 * unknown[fpr] <= sum(map(len, several))]
    return min(resolved, default=headline)


def strongest_only(grouped: Sequence[Groups]) -> list[Groups]:
    """Return every setting's groups under its attack with the largest AUC."""
    best: dict[str, Groups] = {}
    for one in grouped:
        place = one.finding.setting.path
        if place not in best or one.leak.auc_estimate.mean > best[place].leak.auc_estimate.mean:
            best[place] = one
    return list(best.values())


def _groups(
    frame: pl.DataFrame,
    small: Mapping[str, Mapping[str, int]],
    finding: Finding,
    leak: Leak,
    fpr: float | None,
    level: float,
) -> Groups:
    from mia_audit.evaluation.groups import holm

    rows = frame.filter(**dict(zip(KEY, (*leak.key, finding.aggregate), strict=True)))
    parts = [part for _, part in rows.group_by("column", "group", maintain_order=True)]
    differences = [_difference(part) for part in parts]
    p_values = [math.nan if one is None else one[1] for one in differences]
    count = max(1, len(parts))
    listed = [
        _group(part, None if one is None else one[0], float(p), fpr, level, count)
        for part, one, p in zip(parts, differences, holm(p_values), strict=True)
    ]
    overs = [one[0] for one in differences if one is not None]
    return Groups(finding, leak, fpr, listed, small.get(finding.aggregate, {}), _highest(overs, listed, level))


def _highest(overs: Sequence[OverTargets], listed: Sequence[Group], level: float) -> Estimate | None:
    """Return the largest difference after its selection, or, of a single target, as it is listed; None if none is known."""
    from mia_audit.evaluation.selection import after_selection

    highest = max((one.difference for one in listed if one.difference), key=lambda gap: gap.mean, default=None)
    if highest is None or highest.targets < 2:
        return highest
    found = after_selection(overs, level)
    return replace(highest, mean=found.mean, low=found.low, high=found.high)


def _group(
    part: pl.DataFrame, difference: OverTargets | None, p: float, fpr: float | None, level: float, count: int
) -> Group:
    from mia_audit.evaluation.intervals import OverTargets

    first = part.row(0, named=True)

    def over(name: str, comparisons: int = 1) -> Estimate:
        if part[name].null_count():  # not resolvable for some target: the mean of the others would be biased
            return UNKNOWN
        return estimate_over(OverTargets.from_metrics(part, name, level), level, comparisons).as_rate()

    own, common, common_fpr = (
        UNKNOWN if fpr is None else over(f"{name}_at_fpr_{fpr:g}") for name in ("tpr", "common_tpr", "common_fpr")
    )
    inside, outside = (_mean(part, name) for name in ("train_accuracy", "test_accuracy"))
    gap = None if difference is None else _gap(difference, part, level, count)
    auc = over("auc", count)
    return Group(first["column"], first["group"], first["units"], auc, gap, p, own, common, common_fpr, inside, outside)


def _difference(part: pl.DataFrame) -> tuple[OverTargets, float] | None:
    """Return a group's AUC minus that of everybody else, over targets, with the p-value of no difference; None if it is not known."""
    from mia_audit.evaluation.intervals import OverTargets

    known = part.filter(part["auc"].is_not_null() & part["rest_auc"].is_not_null())
    if not len(known):
        return None
    gap = OverTargets.from_metrics(known, "auc").minus(OverTargets.from_metrics(known, "rest_auc"))
    if gap.count > 1:
        return gap, gap.p_value()
    from scipy.special import ndtr

    error = _error(known)
    return gap, float(2 * ndtr(-abs(gap.mean) / error)) if error else math.nan


def _gap(difference: OverTargets, part: pl.DataFrame, level: float, count: int) -> Estimate:
    if difference.count > 1:
        return estimate_over(difference, level, count)
    from scipy.special import ndtri

    half = float(ndtri(1 - (1 - level) / count / 2)) * _error(part)
    return Estimate(difference.mean, math.nan, difference.mean - half, difference.mean + half, 1)


def _error(part: pl.DataFrame) -> float:
    """Return the standard error of a single target's difference of two AUCs, which are of different records (DeLong et al. 1988)."""
    names = ("auc_error", "rest_auc_error")
    if not set(names) <= set(part.columns):
        return math.nan
    return math.hypot(*(math.nan if part[name][0] is None else float(part[name][0]) for name in names))


def _mean(part: pl.DataFrame, name: str) -> float:
    values = part[name].drop_nulls().to_numpy() if name in part.columns else np.empty(0)
    return float(values.mean()) if len(values) else math.nan


CANARIES = "canaries.csv"
METHOD = "one-run-f-dp"
"""The method of the quoted bound: it assumes only fair coins, and one bound alone holds at its confidence."""


@dataclass(frozen=True)
class CanaryBound:
    """A lower bound on ε at δ, at a confidence, and the number of canaries behind it."""

    epsilon: float
    delta: float
    confidence: float
    canaries: int


def canary_bound(folder: Path) -> CanaryBound | None:
    """Return the bound in a setting's folder; None if no canaries were asked for, UserError for a damaged file."""
    path = folder / CANARIES
    try:
        with path.open(encoding="utf-8", newline="") as file:
            (row,) = [row for row in csv.DictReader(file) if row.get("method") == METHOD]
        epsilon, delta, confidence = (float(row[name]) for name in ("epsilon", "delta", "confidence"))
        return CanaryBound(epsilon, delta, confidence, int(row["canaries"]))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: damaged; expected what mia-audit canary-bounds writes") from None
