"""The page's section on explanations: what privacy does to them, and whether one mechanism spares them more than another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.interpretability import OTHER, REFERENCE
from mia_audit.report.findings import Estimate, Finding, Findings, reference
from mia_audit.report.interpretability import (
    Explained,
    Interpretation,
    Peer,
    explainer_series,
    likeness,
    measure_label,
    peers,
)
from mia_audit.report.overlays import overlaid
from mia_audit.report.words import capital, fixed, interval, joined, percent, plus_minus, points, protected, protection

if TYPE_CHECKING:
    from mia_audit.report.results import Results

Place = tuple[str, str]
TWO = "Two unprotected"
"""What the level is called that a setting's likeness to the reference is read against."""
AGAINST: dict[str | None, str] = {
    None: "–",
    REFERENCE: "unprotected model, same training set",
    OTHER: "another model of this setting",
}


def section(
    results: Results, findings: Findings, interpreted: Mapping[Place, Interpretation], confidence: float
) -> list[dict[str, Any]]:
    """Describe every data set: one table over the settings of all its architectures, and what it says in words."""
    datasets: dict[str, dict[Place, list[Finding]]] = {}
    for place, group in findings.groups().items():
        if place in interpreted:
            datasets.setdefault(place[0], {})[place] = group
    return [
        _dataset(dataset, groups, interpreted, confidence)
        | {"pictures": _pictures(results, list(groups.values()), interpreted)}
        for dataset, groups in datasets.items()
    ]


def _pictures(
    results: Results, groups: Sequence[list[Finding]], interpreted: Mapping[Place, Interpretation]
) -> list[dict[str, Any]]:
    """Describe the pictures of all architectures of a data set, named where there are several."""
    return [
        {"name": group[0].setting.architecture if len(groups) > 1 else "", "explained": explained}
        for group in groups
        if (explained := overlaid(results, group, interpreted[group[0].setting.group]))
    ]


def _dataset(
    dataset: str,
    groups: Mapping[Place, list[Finding]],
    interpreted: Mapping[Place, Interpretation],
    confidence: float,
) -> dict[str, Any]:
    heads = list(dict.fromkeys(one.label for place in groups for one in interpreted[place].drawn))
    named = len(groups) > 1
    measures = {interpreted[place].headline for place in groups} - {None}
    return {
        "name": dataset,
        "measure": joined(sorted(measure_label(str(name)) for name in measures)),
        "heads": heads,
        "rows": [row for place, group in groups.items() for row in _rows(group, interpreted[place], heads, named)],
        "items": [
            {"term": f"{place[1]}: {term}" if named else term, "text": text}
            for place, group in groups.items()
            for term, text in _items(group, interpreted[place], confidence)
        ],
        "measured": [
            {"name": place[1] if named else "", **_measured(group, interpreted[place])}
            for place, group in groups.items()
        ],
    }


def _rows(
    group: list[Finding], interpretation: Interpretation, heads: Sequence[str], named: bool
) -> Iterator[dict[str, Any]]:
    base = reference(group)
    for found in group:
        alike = {one.label: value for one, value in likeness(found, base, interpretation).items()}
        name = capital(protection(found.setting))
        yield {
            "name": f"{found.setting.architecture}: {name}" if named else name,
            "accuracy": _cell(found.test_accuracy),
            "leaks": [
                _cell(found.strongest[channel].auc_estimate if channel in found.strongest else None)
                for channel in ("outputs", "explanations")
            ],
            "alike": [_cell(alike.get(head)) for head in heads],
        }


def _cell(value: Estimate | None) -> dict[str, str]:
    if value is None:
        return {"main": "–", "note": ""}
    return {"main": fixed(value.mean), "note": "" if math.isnan(value.low) else interval(value)}


def _items(group: list[Finding], interpretation: Interpretation, confidence: float) -> Iterator[tuple[str, str]]:
    base, measure = reference(group), interpretation.headline
    if measure is None:
        return
    if base is None:
        yield "No reference", "No setting is without protection: there is nothing to hold these explanations against."
        return
    for found in group:
        if found is not base and (alike := likeness(found, base, interpretation)):
            yield capital(protection(found.setting)), " ".join(_sentences(found, base, alike, measure, interpretation))
    for first, second, told in _between(peers(group, interpretation, confidence), measure, interpretation):
        yield f"{first} against {second}", told


def _sentences(
    found: Finding, base: Finding, alike: Mapping[Explained, Estimate], measure: str, interpretation: Interpretation
) -> Iterator[str]:
    """Say how alike a setting's explanations and the reference's are, and whether two reference models are more alike."""
    values = joined([f"{fixed(value.mean, 2)} ({one.label})" for one, value in alike.items()])
    yield (
        f"The {measure_label(measure)} between explanations {protected(found.setting)} and those of the unprotected model"
        f" with the same training set is {values}; 1 would be the same."
    )
    gaps = {one: interpretation.shortfall(found.setting, base.setting, one, measure) for one in alike}
    known = {one: gap for one, gap in gaps.items() if gap and not math.isnan(gap.low)}
    less = [f"{one.label} (by {_gap(gap)})" for one, gap in known.items() if gap.low > 0]
    more = [f"{one.label} (by {_gap(gap)})" for one, gap in known.items() if gap.high < 0]
    same = [one.label for one, gap in known.items() if gap.low <= 0 <= gap.high]
    compared = "two unprotected models with different training sets are to each other"
    if less:
        yield f"That is less alike than {compared}, for {joined(less)}: protection changes what these explanations say."
    if more:
        yield f"That is more alike than {compared}, for {joined(more)}."
    if same:
        yield f"For {joined(same)} it is not distinguishable from how alike {compared}."
    agreement = interpretation.estimate(found.setting, next(iter(alike)), measure, REFERENCE, "same_class")
    if agreement is not None and agreement.mean < 1:
        yield f"Both models explain the same class for {percent(agreement.mean)} of the records."


def _gap(gap: Estimate) -> str:
    low, high = sorted((abs(gap.low), abs(gap.high)))
    return f"{fixed(abs(gap.mean))}, {fixed(low)} to {fixed(high)}"


def _between(found: Iterator[Peer], measure: str, interpretation: Interpretation) -> Iterator[tuple[str, str, str]]:
    """Say in accuracy and in likeness whether a mechanism beats another one at the same ε."""
    wanted = {
        f"{measure} of {one.explainer} ({one.quantity})": f"{measure_label(measure)} of {one.label}"
        for one in interpretation.drawn
    }
    compared: dict[tuple[str, str], list[tuple[str, Estimate, bool]]] = {}
    for peer in found:
        pair = capital(protection(peer.first.setting)), capital(protection(peer.second.setting))
        if peer.what == "test_accuracy":
            compared.setdefault(pair, []).append(("test accuracy", peer.found, True))
        elif peer.what in wanted:
            compared.setdefault(pair, []).append((wanted[peer.what], peer.found, False))
    for (first, second), gaps in compared.items():
        yield first, second, " ".join(_verdicts(gaps))


def _verdicts(gaps: Sequence[tuple[str, Estimate, bool]]) -> Iterator[str]:
    """Say what is higher, what is lower and what is not distinguishable; the last of a gap says that it is of a rate."""
    known = [(what, gap, rate) for what, gap, rate in gaps if not math.isnan(gap.low)]
    for word, wanted in (
        ("Higher", [gap for gap in known if gap[1].low > 0]),
        ("Lower", [gap for gap in known if gap[1].high < 0]),
    ):
        if wanted:
            yield f"{word}: {joined([f'{what} (by {_amount(gap, rate)})' for what, gap, rate in wanted])}."
    same = [f"{what} ({_around(gap, rate)})" for what, gap, rate in known if gap.low <= 0 <= gap.high]
    if same:
        yield f"No difference could be measured in {joined(same)}."


def _amount(gap: Estimate, rate: bool) -> str:
    return (
        f"{points(gap.mean)} points, {_around(gap, rate)}" if rate else f"{fixed(abs(gap.mean))}, {_around(gap, rate)}"
    )


def _around(gap: Estimate, rate: bool) -> str:
    return f"{interval(gap, 100, 1)} points" if rate else interval(gap)


def _measured(group: list[Finding], interpretation: Interpretation) -> dict[str, Any]:
    """Return every measure of every explainer, a column per setting."""
    rows = []
    for measure in interpretation.measures:
        for one in interpretation.explained:
            for against in AGAINST:
                values = [interpretation.estimate(found.setting, one, measure, against) for found in group]
                if any(values):
                    cells = [plus_minus(value) if value else "–" for value in values]
                    rows.append(
                        {
                            "measure": measure_label(measure),
                            "explainer": one.label,
                            "against": AGAINST[against],
                            "cells": cells,
                        }
                    )
    return {"settings": [capital(protection(found.setting)) for found in group], "rows": rows}


AGAINST = {
    None: "–",
    "reference": "unprotected model, same training set",
    "other model": "another model of this setting",
}


def chart_settings(
    group: list[Finding], interpretation: Interpretation
) -> tuple[list[tuple[str, dict[str, Estimate]]], Any]:
    """Return what the page's chart draws: settings by name with their likeness by explainer, and the explainers' colours."""
    base = reference(group)
    settings = [
        (TWO if found is base else capital(protection(found.setting)), likeness(found, base, interpretation))
        for found in group
    ]
    named = [(name, {one.label: value for one, value in alike.items()}) for name, alike in settings if alike]
    return named, list(explainer_series(group, interpretation).values())
