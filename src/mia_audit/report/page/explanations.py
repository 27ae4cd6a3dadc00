"""The page's section on explanations: the effect of privacy on them, and a comparison of mechanisms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.explanation_metrics import FULL_MAP, OTHER, REFERENCE
from mia_audit.report.data.findings import Estimate, Finding, Findings, reference
from mia_audit.report.data.series import Explained, Interpretation, Peer, margin_of, measure_label, peers, similarity
from mia_audit.report.page.exposed import overlaid
from mia_audit.report.tables.catalogue import Cell, Column, Layout, auc_cell, estimate_cell, text
from mia_audit.report.text.formatting import (
    fixed,
    interval,
    joined,
    percent,
    plus_minus,
    points,
    protected,
    significant,
    titled,
)

if TYPE_CHECKING:
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Spec

Place = tuple[str, str]
COMPARED: dict[str | None, str] = {
    None: "–",
    REFERENCE: "unprotected model, same training set",
    OTHER: "another model of this setting",
    FULL_MAP: "the full map",
}


def section(results: Results, findings: Findings, interpreted: Mapping[Place, Interpretation]) -> list[dict[str, Any]]:
    """Return a part for every data set: a table over the settings of all its architectures, sentences and pictures."""
    datasets: dict[str, dict[Place, list[Finding]]] = {}
    for place, group in findings.groups().items():
        if place in interpreted:
            datasets.setdefault(place[0], {})[place] = group
    return [
        _dataset(dataset, groups, interpreted, results.spec)
        | {"pictures": _pictures(results, list(groups.values()), interpreted)}
        for dataset, groups in datasets.items()
    ]


def _pictures(
    results: Results, groups: Sequence[list[Finding]], interpreted: Mapping[Place, Interpretation]
) -> list[dict[str, Any]]:
    """Return the pictures of all architectures of a data set, named where there are several."""
    return [
        {"name": group[0].setting.architecture_name if len(groups) > 1 else "", "explained": explained}
        for group in groups
        if (explained := overlaid(results, group, interpreted[group[0].setting.group]))
    ]


def _dataset(
    dataset: str, groups: Mapping[Place, list[Finding]], interpreted: Mapping[Place, Interpretation], spec: Spec
) -> dict[str, Any]:
    named, level = len(groups) > 1, f"{spec.confidence * 100:g}\u00a0%"
    measures = {interpreted[place].headline for place in groups} - {None}
    return {
        "name": dataset,
        "table": _layout(groups, interpreted, joined(sorted(measure_label(str(name)) for name in measures)), level),
        "items": [
            {"term": f"{place[1]}: {term}" if named else term, "text": text}
            for place, group in groups.items()
            for term, text in _items(group, interpreted[place], spec.margins)
        ],
        "measured": [
            {"name": place[1] if named else "", "table": _measured(group, interpreted[place])}
            for place, group in groups.items()
        ],
    }


def _layout(
    groups: Mapping[Place, list[Finding]], interpreted: Mapping[Place, Interpretation], measure: str, level: str
) -> Layout:
    """Return the table of accuracy, leakage and similarity of explanations in every setting of a data set."""
    heads = list(dict.fromkeys(one.label for place in groups for one in interpreted[place].drawn)) if measure else []
    rows: list[list[Cell | str]] = []
    for place, group in groups.items():
        for finding in group:
            values = similarity(finding, reference(group), interpreted[place])
            similar = {one.label: value for one, value in values.items()}
            name = titled(finding.setting)
            leaks = [finding.strongest.get(channel) for channel in ("outputs", "explanations")]
            rows.append(
                [
                    f"{place[1]}: {name}" if len(groups) > 1 else name,
                    estimate_cell(finding.test_accuracy),
                    *map(auc_cell, leaks),
                    *(estimate_cell(similar.get(head)) for head in heads),
                ]
            )
    columns = [
        *text("Setting"),
        Column("Test accuracy"),
        *(Column(name, "AUC of the strongest attack") for name in ("outputs", "explanations")),
        *(Column(head, "Similarity of explanations") for head in heads),
    ]
    meaning = (
        f" Similarity is the {measure} between a model's explanation of a record and that of the unprotected model with the same "
        "training set. Rows without protection compare two such models with different training sets, as explanations differ anyway."
    )
    caption = f"Accuracy, explanations and leakage side by side, means over models with {level} intervals."
    return Layout(columns, rows, caption + (meaning if measure else ""))


def _items(
    group: list[Finding], interpretation: Interpretation, margins: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    base, measure = reference(group), interpretation.headline
    if measure is None:
        return
    if base is None:
        yield (
            "No reference",
            "No setting is without protection, so there is nothing to compare these explanations with.",
        )
        return
    for finding in group:
        if finding is not base and (similar := similarity(finding, base, interpretation)):
            yield (titled(finding.setting), " ".join(_sentences(finding, base, similar, measure, interpretation)))
    compared = peers(group, interpretation, interpretation.confidence)
    for first, second, sentences in _between(compared, measure, interpretation, margins):
        yield f"{first} against {second}", sentences


def _sentences(
    finding: Finding, base: Finding, similar: Mapping[Explained, Estimate], measure: str, interpretation: Interpretation
) -> Iterator[str]:
    """Say how similar a setting's explanations are to the reference's, and whether two reference models are more similar."""
    values = joined([f"{fixed(value.mean, 2)} ({one.label})" for one, value in similar.items()])
    yield (
        f"The {measure_label(measure)} between explanations {protected(finding.setting)} and those of the unprotected model"
        f" with the same training set is {values}; 1 means identical."
    )
    gaps = {one: interpretation.shortfall(finding.setting, base.setting, one, measure) for one in similar}
    known = {one: gap for one, gap in gaps.items() if gap and not math.isnan(gap.low)}
    less = [f"{one.label} (by {_gap(gap)})" for one, gap in known.items() if gap.low > 0]
    more = [f"{one.label} (by {_gap(gap)})" for one, gap in known.items() if gap.high < 0]
    same = [one.label for one, gap in known.items() if gap.low <= 0 <= gap.high]
    compared = "two unprotected models with different training sets are to each other"
    if less:
        yield f"That is less similar than {compared}, for {joined(less)}: protection changes what these explanations say."
    if more:
        yield f"That is more similar than {compared}, for {joined(more)}."
    if same:
        yield f"For {joined(same)} it is not distinguishable from how similar {compared}."
    agreement = interpretation.estimate(finding.setting, next(iter(similar)), measure, REFERENCE, "same_class")
    if agreement is not None and agreement.mean < 1:
        yield f"Both models explain the same class for {percent(agreement.mean)} of the records."


def _gap(gap: Estimate) -> str:
    low, high = sorted((abs(gap.low), abs(gap.high)))
    return f"{fixed(abs(gap.mean))}, {fixed(low)} to {fixed(high)}"


def _between(
    differences: Iterator[Peer], measure: str, interpretation: Interpretation, margins: Mapping[str, float]
) -> Iterator[tuple[str, str, str]]:
    """Compare a mechanism with another one at the same ε: in accuracy, in similarity, and in every metric that has a margin."""
    confidence = interpretation.confidence
    wanted = {
        f"{measure} of {one.explainer} ({one.quantity})": f"{measure_label(measure)} of {one.label}"
        for one in interpretation.drawn
    }
    compared: dict[tuple[str, str], list[tuple[str, Estimate, bool]]] = {}
    tested: dict[tuple[str, str], list[str]] = {}
    for peer in differences:
        pair = titled(peer.first.setting), titled(peer.second.setting)
        margin, what = margin_of(peer.metric, margins), wanted.get(peer.metric, _name(peer.metric))
        if peer.metric == "test_accuracy" or peer.metric in wanted or margin is not None:
            compared.setdefault(pair, []).append((what, peer.gap, peer.metric == "test_accuracy"))
        if margin is not None and not math.isnan(p := peer.gap.equivalence(margin, confidence)):
            verdict = "equivalent" if p < 1 - confidence else "equivalence not shown"
            tested.setdefault(pair, []).append(f"{what} {verdict} within ±{margin:g} (p = {significant(p, 2)})")
    for (first, second), gaps in compared.items():
        yield first, second, " ".join([*_verdicts(gaps), *_equivalences(tested.get((first, second), []))])


def _name(metric: str) -> str:
    kind, _, rest = metric.partition(" of ")
    return f"{'AUC' if kind == 'auc' else kind.replace('_', ' ')}{f' of {rest}' if rest else ''}"


def _equivalences(tested: Sequence[str]) -> Iterator[str]:
    if tested:
        yield f"By two one-sided tests, not corrected for their number: {joined(list(tested))}."


def _verdicts(gaps: Sequence[tuple[str, Estimate, bool]]) -> Iterator[str]:
    """List the metrics that are higher, lower and not distinguishable; the third item of a gap tells whether it is a rate."""
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


def _measured(group: list[Finding], interpretation: Interpretation) -> Layout:
    """Return the table of every measure of every explainer, a column per setting."""
    rows: list[list[Cell | str]] = []
    for measure in interpretation.measures:
        for one in interpretation.explained:
            for against, name in COMPARED.items():
                values = [interpretation.estimate(finding.setting, one, measure, against) for finding in group]
                if any(values):
                    cells = [plus_minus(value) if value else "–" for value in values]
                    rows.append([measure_label(measure), one.label, name, *cells])
    settings = [Column(titled(finding.setting)) for finding in group]
    return Layout([*text("Measure", "Explanation", "Compared with"), *settings], rows)
