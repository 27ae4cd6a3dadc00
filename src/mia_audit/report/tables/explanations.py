"""Measures of explanations, and deletion and insertion curves, over shadow models.

Paired differences over the same targets: between channels, between settings and their reference, between mechanisms, and
between the architectures, mechanisms or explainers that the config compares. Data sets are compared unpaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from mia_audit.explanation_metrics import FULL_MAP, OTHER, REFERENCE
from mia_audit.report.data.findings import (
    Estimate,
    Finding,
    Findings,
    Leak,
    accuracy_difference,
    chosen,
    difference,
    independent_difference,
    reference,
    welch,
)
from mia_audit.report.data.series import Peer, curves_of, interpretations, margin_of, peers
from mia_audit.report.tables.attacks import level
from mia_audit.report.tables.catalogue import (
    PARTS,
    SETTING,
    Cell,
    Column,
    Layout,
    frame_of,
    identity,
    laid_out,
    parts,
    parts_schema,
    printed,
    setting_columns,
    spread_column,
    table,
    within,
)
from mia_audit.report.text.formatting import fixed
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results

EXPLAINED = [printed("Explainer", "explainer"), printed("Quantity", "quantity"), printed("Measure", "measure")]


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        *EXPLAINED,
        printed("Compared with", "against"),
        spread_column("Value", "value", interval=True),
    ]
    caption = f"Mean over records and shadow models, with the standard deviation over models in its last digits in parentheses, {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("explanation_metrics", _layout, condition=lambda spec: spec.explanation_metrics)
def explanation_metrics(results: Results, findings: Findings) -> pl.DataFrame:
    """Return every measure of every explainer in every setting."""
    interpreted = interpretations(results)
    rows = [
        {
            **identity(finding.setting),
            **{"explainer": one.explainer, "quantity": one.quantity, "measure": measure, "against": against},
            "models": value.targets,
            **parts("value", value),
            "same_class": same.mean if same else None,
        }
        for finding in findings.settings
        if (interpretation := interpreted.get(finding.setting.group))
        for one in interpretation.explained
        for measure in interpretation.measures
        for against in (None, REFERENCE, OTHER, FULL_MAP)
        if (value := interpretation.estimate(finding.setting, one, measure, against))
        for same in [interpretation.estimate(finding.setting, one, measure, against, "same_class")]
    ]
    schema = SETTING | dict.fromkeys(("explainer", "quantity", "measure", "against"), str) | {"models": int}
    return frame_of(schema | parts_schema("value") | {"same_class": float}, rows)


def _curves_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    shares = frame["share"].unique().sort().to_list()
    curves = [
        curve.row(0, named=True) | dict(zip(curve["share"], curve["value_mean"], strict=True))
        for _, curve in frame.group_by(*SETTING, "explainer", "quantity", "measure", maintain_order=True)
    ]
    heights = [(Column(fixed(share, 2)), partial(_height, share)) for share in shares]
    caption = (
        "The class's probability when this share of the coordinates is removed (deletion) or inserted (insertion): mean over "
        "records, then over shadow models."
    )
    return laid_out([*setting_columns(results.spec.settings), *EXPLAINED, *heights], curves, caption)


def _height(share: float, curve: Mapping[Any, Any]) -> str:
    return fixed(curve[share]) if share in curve else "–"


@table("curves", _curves_layout, condition=lambda spec: spec.curves)
def curves(results: Results, findings: Findings) -> pl.DataFrame:
    """Return every curve of every explainer in every setting, a row per step."""
    rows = [
        {
            **identity(curve.finding.setting),
            **{"explainer": curve.explained.explainer, "quantity": curve.explained.quantity, "measure": curve.measure},
            **{"share": share, "models": height.targets},
            **parts("value", height),
        }
        for group in findings.groups().values()
        if group[0].setting.trained
        for curve in curves_of(results, group, results.spec.confidence)
        for share, height in zip(curve.shares, curve.heights, strict=True)
    ]
    schema = SETTING | dict.fromkeys(("explainer", "quantity", "measure"), str) | {"share": float, "models": int}
    return frame_of(schema | parts_schema("value"), rows)


def _differences_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        printed("Metric", "metric"),
        printed("Minuend", "minuend"),
        printed("Subtrahend", "subtrahend"),
        (Column("Difference"), lambda row: Cell(fixed(row["mean"]), within(row["low"], row["high"]))),
    ]
    caption = f"Paired over the same targets (accuracy: the same shadow models), {level(results)}."
    return replace(laid_out(columns, frame.iter_rows(named=True), caption), notes=list(_equal_numbers(findings)))


def _equal_numbers(findings: Findings) -> Iterator[str]:
    """Say that settings with more models than others are attacked by the first ones alone."""
    leaks = (leak.by_first for finding in findings.settings for leak in finding.strongest.values())
    for models in sorted({len(leak.targets) for leak in leaks if leak}):
        yield (
            f"Settings have different numbers of models: of those with more than {models}, differences from others are of the first"
            f" {models}, each attacked with {models - 1} others."
        )


@table("differences", _differences_layout)
def differences(results: Results, findings: Findings) -> pl.DataFrame:
    """Return each channel minus outputs, each private setting minus its reference, and mechanisms at the same ε."""
    confidence, interpreted = results.spec.confidence, interpretations(results)
    rows = [
        {**identity(finding.setting), **row}
        for group in findings.groups().values()
        for finding in group
        for row in _compare(finding, reference(group), findings.fpr, confidence)
    ]
    rows += [
        {
            **identity(peer.first.setting),
            **_row(peer.metric, _name(peer.first), _name(peer.second), peer.gap),
            **_equivalence(peer, results.spec.margins, confidence),
        }
        for place, group in findings.groups().items()
        for peer in peers(group, interpreted.get(place), confidence)
    ]
    schema = SETTING | dict.fromkeys(("metric", "minuend", "subtrahend"), str) | {"targets": int}
    tested = ("margin", "p_equivalence") if results.spec.margins else ()
    return frame_of(schema | dict.fromkeys((*PARTS, *tested), float), rows)


def _comparisons_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    layout = _differences_layout(results, findings, frame)
    caption = f"Paired over the same targets (data sets: unpaired), {level(results)} that hold together for all {len(frame)} differences."
    return replace(layout, caption=caption)


@table("comparisons", _comparisons_layout, condition=lambda spec: spec.compare)
def comparisons(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the differences between the settings of every pair that is compared, corrected for their number (Bonferroni)."""
    count = len(list(_pairwise(results, findings, results.spec.confidence)))
    corrected = 1 - (1 - results.spec.confidence) / max(count, 1)
    schema = SETTING | dict.fromkeys(("metric", "minuend", "subtrahend"), str) | {"targets": int}
    return frame_of(schema | dict.fromkeys(PARTS, float), _pairwise(results, findings, corrected))


def _pairwise(results: Results, findings: Findings, confidence: float) -> Iterator[dict[str, Any]]:
    for earlier, later in combinations(results.spec.compare, 2):
        for finding in findings.settings:
            where = identity(finding.setting)
            for row in _between_explainers(finding, later, earlier, findings.fpr, confidence):
                yield where | row
            for dimension in ("dataset", "architecture", "mechanism"):
                for other in _partners(finding, findings.settings, dimension, later, earlier):
                    names = _named(finding, dimension), _named(other, dimension)
                    for channel in (name for name in finding.strongest if name in other.strongest):
                        leaks = finding.strongest[channel], other.strongest[channel]
                        labels = f"{channel} of {names[0]}", f"{channel} of {names[1]}"
                        rows = _gaps(*leaks, *labels, findings.fpr, confidence, paired=dimension != "dataset")
                        yield from (where | row for row in rows)
                    compared = _independent_accuracies if dimension == "dataset" else accuracy_difference
                    if gap := compared(finding, other, confidence):
                        labels = f"test_accuracy of {names[0]}", f"test_accuracy of {names[1]}"
                        yield where | _row("test_accuracy", *labels, gap)


def _partners(
    finding: Finding, every: Sequence[Finding], dimension: str, later: str, earlier: str
) -> Iterator[Finding]:
    """Yield the settings that differ from a setting only in data set or architecture, or only in mechanism and, if one has none, ε."""
    setting, kept = finding.setting, {"dataset", "architecture", "mechanism"} - {dimension}
    if getattr(setting, dimension) != later:
        return
    for other in every:
        alike = all(getattr(other.setting, name) == getattr(setting, name) for name in kept)
        none = dimension == "mechanism" and "inf" in (setting.epsilon, other.setting.epsilon)
        same_epsilon = none or setting.epsilon == other.setting.epsilon
        if getattr(other.setting, dimension) == earlier and alike and same_epsilon:
            yield other


def _between_explainers(
    finding: Finding, later: str, earlier: str, fpr: float | None, confidence: float
) -> Iterator[dict[str, Any]]:
    """Yield the differences between the strongest attacks on two explainers' attributions."""
    leaks = finding.leaks.get("explanations", ())
    first, second = (
        [leak for leak in leaks if read_signal(leak.signal).explainer == name] for name in (later, earlier)
    )
    if first and second:
        yield from _gaps(chosen(first), chosen(second), later, earlier, fpr, confidence)


def _gaps(
    first: Leak,
    second: Leak,
    minuend: str,
    subtrahend: str,
    fpr: float | None,
    confidence: float,
    paired: bool = True,
) -> Iterator[dict[str, Any]]:
    first, minus = replace(first, confidence=confidence), difference if paired else independent_difference
    for metric, column in {"auc": "auc", **({"tpr": f"tpr_at_fpr_{fpr:g}"} if fpr is not None else {})}.items():
        yield _row(column, minuend, subtrahend, minus(first, second, metric))


def _independent_accuracies(first: Finding, second: Finding, confidence: float) -> Estimate | None:
    """Return the difference in test accuracy between models of two data sets; None where one was not trained."""
    one, other = first.test_accuracy, second.test_accuracy
    if one is None or other is None:
        return None
    sides = [(side.mean, side.sd / math.sqrt(side.targets), side.targets) for side in (one, other)]
    return welch(sides, confidence)


def _named(finding: Finding, dimension: str) -> str:
    return _name(finding) if dimension == "mechanism" else str(getattr(finding.setting, dimension))


def _equivalence(peer: Peer, margins: Mapping[str, float], confidence: float) -> dict[str, float]:
    margin = margin_of(peer.metric, margins)
    p = math.nan if margin is None else peer.gap.equivalence(margin, confidence)
    return {} if margin is None or math.isnan(p) else {"margin": margin, "p_equivalence": p}


def _compare(finding: Finding, base: Finding | None, fpr: float | None, confidence: float) -> Iterator[dict[str, Any]]:
    metrics = {"auc": "auc", **({"tpr": f"tpr_at_fpr_{fpr:g}"} if fpr is not None else {})}
    outputs = finding.strongest.get("outputs")
    for channel, leak in finding.strongest.items():
        for metric, column in metrics.items():
            if outputs is not None and channel != "outputs":
                yield _row(column, channel, "outputs", difference(leak, outputs, metric))
            if base is not None and base is not finding and channel in base.strongest:
                yield _row(
                    column, channel, f"{channel} of {_name(base)}", difference(leak, base.strongest[channel], metric)
                )
    if base is not None and base is not finding and (gap := accuracy_difference(finding, base, confidence)):
        yield _row("test_accuracy", "test_accuracy", f"test_accuracy of {_name(base)}", gap)


def _name(finding: Finding) -> str:
    nominal = " (no guarantee)" if finding.setting.no_guarantee else ""
    return f"{finding.setting.mechanism}-eps{finding.setting.named}{nominal}"


def _row(metric: str, minuend: str, subtrahend: str, value: Estimate) -> dict[str, Any]:
    values = {part: known for part in PARTS if not math.isnan(known := getattr(value, part))}
    return {"metric": metric, "minuend": minuend, "subtrahend": subtrahend, "targets": value.targets, **values}
