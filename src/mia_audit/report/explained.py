"""The page's sections on explanations, with pictures of them, and on the most exposed records or persons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.evaluation.exposure import exposure
from mia_audit.evaluation.metrics import called_above
from mia_audit.explain import explainers
from mia_audit.explain.release import named_release, release_of
from mia_audit.explanation_metrics import FULL_MAP, OTHER, REFERENCE
from mia_audit.report.figures.catalogue import attribution_picture, attribution_scale, blend, data_uri, record_picture
from mia_audit.report.findings import Estimate, Finding, Findings, Leak, reference
from mia_audit.report.formatting import (
    count,
    fixed,
    interval,
    joined,
    percent,
    plus_minus,
    points,
    protected,
    rate,
    significant,
    titled,
)
from mia_audit.report.series import Explained, Interpretation, Peer, margin_of, measure_label, peers, similarity
from mia_audit.report.statements import exposed_sentences
from mia_audit.report.tables.catalogue import Cell, Column, Layout, auc_cell, estimate_cell, text
from mia_audit.signals.name import Signal, read_signal
from mia_audit.storage import read_table

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

    from mia_audit.evaluation.files import Scored
    from mia_audit.report.results import Results
    from mia_audit.training.task import Records

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
    return [_dataset(results, dataset, groups, interpreted) for dataset, groups in datasets.items()]


def _dataset(
    results: Results, dataset: str, groups: Mapping[Place, list[Finding]], interpreted: Mapping[Place, Interpretation]
) -> dict[str, Any]:
    named, level = len(groups) > 1, f"{results.spec.confidence * 100:g}\u00a0%"
    measures = {interpreted[place].headline for place in groups} - {None}
    return {
        "name": dataset,
        "table": _layout(groups, interpreted, joined(sorted(measure_label(str(name)) for name in measures)), level),
        "items": [
            {"term": f"{place[1]}: {term}" if named else term, "text": text}
            for place, group in groups.items()
            for term, text in _items(group, interpreted[place], results.spec.margins)
        ],
        "measured": [
            {"name": place[1] if named else "", "table": _measured(group, interpreted[place])}
            for place, group in groups.items()
        ],
        "pictures": [
            {"name": group[0].setting.architecture_name if named else "", "explained": explained}
            for place, group in groups.items()
            if (explained := overlaid(results, group, interpreted[place]))
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
            cells = [estimate_cell(finding.test_accuracy)]
            cells += [auc_cell(finding.strongest.get(channel)) for channel in ("outputs", "explanations")]
            cells += [estimate_cell(similar.get(head)) for head in heads]
            name = titled(finding.setting)
            rows.append([f"{place[1]}: {name}" if len(groups) > 1 else name, *cells])
    columns = [*text("Setting"), Column("Test accuracy")]
    columns += [Column(name, "AUC of the strongest attack") for name in ("outputs", "explanations")]
    columns += [Column(head, "Similarity of explanations") for head in heads]
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
    compared: dict[tuple[str, str], list[tuple[Estimate, str]]] = {}
    tested: dict[tuple[str, str], list[str]] = {}
    for peer in differences:
        pair = titled(peer.first.setting), titled(peer.second.setting)
        kind, of, rest = peer.metric.partition(" of ")
        called = "AUC" if kind == "auc" else kind.replace("_", " ")
        margin, what = margin_of(peer.metric, margins), wanted.get(peer.metric, f"{called}{of}{rest}")
        if peer.metric == "test_accuracy" or peer.metric in wanted or margin is not None:
            rate = peer.metric == "test_accuracy"
            within = f"{interval(peer.gap, 100, 1)} points" if rate else interval(peer.gap)
            if peer.gap.low > 0 or peer.gap.high < 0:
                mean = f"{points(peer.gap.mean)} points" if rate else fixed(abs(peer.gap.mean))
                within = f"by {mean}, {within}"
            compared.setdefault(pair, []).append((peer.gap, f"{what} ({within})"))
        if margin is not None and not math.isnan(p := peer.gap.equivalence(margin, confidence)):
            verdict = "equivalent" if p < 1 - confidence else "equivalence not shown"
            tested.setdefault(pair, []).append(f"{what} {verdict} within ±{margin:g} (p = {significant(p, 2)})")
    for pair, gaps in compared.items():
        sentences = {
            "Higher: ": [text for gap, text in gaps if gap.low > 0],
            "Lower: ": [text for gap, text in gaps if gap.high < 0],
            "No difference could be measured in ": [text for gap, text in gaps if gap.low <= 0 <= gap.high],
            "By two one-sided tests, not corrected for their number: ": tested.get(pair, []),
        }
        yield *pair, " ".join(f"{start}{joined(listed)}." for start, listed in sentences.items() if listed)


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


FEATURES = 6
"""Number of features shown for a row of a table, those with the largest attributions."""
RECORDS = 8
"""Number of records listed for a person: those on whose scores membership has the largest effect."""


@dataclass(frozen=True)
class Bar:
    """A feature of a row: its value, and both models' attributions to it, relative to the largest attribution shown."""

    feature: str
    value: str
    inside: float
    outside: float


@dataclass
class Exposed:
    """One record, or person, and how often models of the second half recognise it at the headline FPR."""

    record: int
    recognised: int
    inside: int
    false_alarms: int
    outside: int
    revealed: float = math.nan
    """Estimated share of fresh models trained on it that reveal it."""
    limits: tuple[float, float] = (math.nan, math.nan)
    """Limits of that share minus the share of the other models that name it wrongly."""
    percentile: float = math.nan
    """For a finished model: the share of records with a lower score."""
    label: str = ""
    picture: str = ""
    maps: tuple[str, ...] = ()
    """Attributions by a model that trained on the record and by one that did not, on one scale."""
    bars: list[Bar] = field(default_factory=list)
    person: str = ""
    """The id of a person, whose records are listed in `theirs`; empty for a record."""
    theirs: str = ""
    origin: str = ""
    """The record's file, or its row in the user's file, counted from 1 below the header."""


def exposed_section(results: Results, findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the most exposed records of every data set's reference setting, and of every finished model, where records stand out."""
    seen: set[str] = set()
    for group in findings.groups().values():
        finding = reference(group) or group[0]
        setting = finding.setting
        name = setting.place if setting.finished else setting.dataset_name
        listed = most_exposed(results, finding, findings.fpr) if name not in seen else None
        if listed is None or not listed[1]:
            continue
        seen.add(name)
        leak, exposed = listed
        maps, bars = (any(getattr(one, shown) for one in exposed) for shown in ("maps", "bars"))
        units = "persons" if finding.by_person else "records"
        yield {
            "name": name,
            "text": exposed_sentences(finding, leak, len(exposed), maps, bars),
            "records": [
                vars(one) | {"sentences": _recognised(one, findings.fpr, units, findings.confidence)} for one in exposed
            ],
        }


def _recognised(one: Exposed, fpr: float | None, units: str, confidence: float) -> str:
    """Say how often a record, or a person, is recognised, correctly and wrongly."""
    if not math.isnan(one.percentile):  # a finished model, which was trained on it
        share, verb = f"{math.floor(one.percentile * 1000) / 10:.1f}\u00a0%", "is" if one.recognised else "is not"
        revealed = "" if fpr is None else f", and {verb} revealed at an FPR of {rate(fpr)}"
        return f"It scores above {share} of all records{revealed}."
    assert fpr is not None  # estimates are at an FPR
    it = "it" if units == "records" else "them"
    low, high = (max(limit, 0.0) for limit in one.limits)
    return (
        f"{one.recognised} of the {count(one.inside, 'model')} trained on {it} reveal {it} at an FPR of {rate(fpr)};"
        f" {one.false_alarms} of the {one.outside} others name {it} wrongly. Further models trained on {it} are estimated to reveal {it}"
        f" in {100 * one.revealed:.0f}\u00a0%, and more often than others by {100 * low:.0f} to {100 * high:.0f}\u00a0% of models"
        f" (level {100 * confidence:g}\u00a0%)."
    )


def most_exposed(results: Results, finding: Finding, fpr: float | None) -> tuple[Leak, list[Exposed]] | None:
    """List the records, or persons, that stand out, chosen with one half of the models and counted with the other.

    None without attacks, or where that is not known; the list is empty where records do not differ beyond chance.
    """
    if not finding.strongest or not results.spec.exposed:
        return None
    leak = finding.chief
    if finding.setting.finished:
        return _of_finished(results, finding, leak, fpr)
    halves, found = results.halves(finding.setting), results.estimated(finding.setting, fpr)
    if halves is None or found is None:
        return None
    attack, signal, likelihood = halves.key
    leak = replace(leak, attack=attack, signal=signal, likelihood=likelihood, rivals=())
    scored = results.scored(finding.setting, *halves.key, finding.aggregate)
    places = found.listed[: results.spec.exposed]
    hits, alarms = halves.hits[f"{fpr:g}"][1], halves.alarms[f"{fpr:g}"][1]
    exposed = [
        Exposed(
            record=int(scored.record[i]),
            recognised=int(hits[i]),
            inside=int(halves.members[1, i]),
            false_alarms=int(alarms[i]),
            outside=int(halves.others[1, i]),
            revealed=float(found.reveal[i]),
            limits=(float(found.low[i]), float(found.high[i])),
        )
        for i in places
    ]
    _complete(results, finding, leak, exposed=exposed, scored=scored, places=places)
    return leak, exposed


def _of_finished(
    results: Results, finding: Finding, leak: Leak, fpr: float | None
) -> tuple[Leak, list[Exposed]] | None:
    """List the members with the highest scores of a finished model; none where attacks on it do no better than guessing."""
    if not leak.beats_guessing:
        return None
    scored = results.scored(finding.setting, *leak.key, finding.aggregate)
    columns = exposure(scored.score, scored.member)
    called = called_above(scored.score, scored.member, fpr) if fpr is not None else np.zeros_like(scored.member)
    order = np.argsort(columns["rank"])[: results.spec.exposed]
    order = order[np.isfinite(columns["percentile"][order])]
    exposed = [
        Exposed(int(scored.record[i]), int(called[i, 0]), 1, 0, 0, percentile=float(columns["percentile"][i]))
        for i in order
    ]
    _complete(results, finding, leak, exposed=exposed, scored=scored, places=order)
    return leak, exposed


def _complete(
    results: Results, finding: Finding, leak: Leak, exposed: list[Exposed], scored: Scored, places: np.ndarray
) -> None:
    """Add to records what they look like, and to persons their records."""
    if finding.by_person:
        assert scored.person is not None  # tables of persons' scores have their ids
        _list_records(results, finding, leak, exposed, scored.person[places])
    else:
        _illustrate(results, finding, exposed, scored.target, scored.member[places])


def _list_records(
    results: Results, finding: Finding, leak: Leak, exposed: Sequence[Exposed], persons: np.ndarray
) -> None:
    """Add every person's id, and their records in words, the most revealing first."""
    scored = results.scored(finding.setting, *leak.key)
    gaps = exposure(scored.score, scored.member)["gap"]
    origin, class_of = results.origins(finding.setting.pool), _classes(results, finding)
    for one, person in zip(exposed, persons, strict=True):
        places = np.flatnonzero(np.asarray(scored.person == person))
        places = places[np.argsort(np.where(np.isnan(gaps[places]), np.inf, -gaps[places]), kind="stable")]
        numbers = [int(scored.record[place]) for place in places[:RECORDS]]
        listed = ", ".join(f"{origin(number) or number}{class_of(number)}" for number in numbers)
        more = f" and {len(places) - RECORDS} more" if len(places) > RECORDS else ""
        one.person, one.theirs = str(person), f"{'Records' if len(places) > 1 else 'Record'} {listed}{more}"


def _classes(results: Results, finding: Finding) -> Callable[[int], str]:
    """Return a function that names the class of a record, if the audit has its pool."""
    metadata = results.pool_metadata(finding.setting.pool)
    if metadata is None:
        return lambda number: ""
    path = results.root / "pools" / finding.setting.pool / "records.parquet"
    labels = read_table(path, "records", ["label"])["label"].to_numpy()
    return lambda number: f" (class {class_name(metadata, int(labels[number]))})"


def _illustrate(
    results: Results, finding: Finding, exposed: list[Exposed], targets: np.ndarray, member: np.ndarray
) -> None:
    """Add label, picture and attributions to every record, if the audit has the pool and the models."""
    from mia_audit.training.task import Records

    setting = finding.setting
    metadata = results.pool_metadata(setting.dataset)
    pool = results.root / "pools" / setting.dataset
    if metadata is None or not exposed or not (pool / "records.npy").exists():
        return
    labels = read_table(pool / "records.parquet", "records", ["label"])["label"].to_numpy()
    stored = np.load(pool / "records.npy", mmap_mode="r")
    numbers = [one.record for one in exposed]
    records = np.stack([stored[number] for number in numbers])
    origin = results.origins(setting.dataset)
    for one, record in zip(exposed, records, strict=True):
        one.origin = origin(one.record)
        one.label = class_name(metadata, int(labels[one.record]))
        if metadata["kind"] == "image":
            one.picture = record_picture(record)
    shown = _shown_signal(results, finding)
    architecture = results.root / setting.dataset / setting.architecture / "architecture.json"
    if shown is None or not architecture.exists():
        return
    asked = Records(records, labels[numbers], metadata, np.asarray(numbers))
    pairs = _attributions(results, finding, architecture, asked=asked, targets=targets, member=member, shown=shown)
    for one, record, pair in zip(exposed, records, pairs, strict=True):
        if len(pair) == 2:
            _show(one, record, pair, metadata)


def _show(one: Exposed, record: np.ndarray, pair: Sequence[np.ndarray], metadata: Mapping[str, Any]) -> None:
    if metadata["kind"] == "image":
        scale = attribution_scale(list(pair))
        one.maps = tuple(attribution_picture(attribution, scale) for attribution in pair)
        return
    inside, outside = (attribution.reshape(-1, record.size).sum(axis=0) for attribution in pair)
    largest = np.maximum(np.abs(inside), np.abs(outside))
    features = metadata.get("features") or [f"feature {i}" for i in range(len(largest))]
    record = in_original_units(record, metadata)
    scale = largest.max() or 1
    for i in np.argsort(-largest, kind="stable")[:FEATURES]:
        shares = float(inside[i] / scale), float(outside[i] / scale)
        one.bars.append(Bar(features[i], significant(float(record[i])), *shares))


def in_original_units(record: np.ndarray, metadata: Mapping[str, Any]) -> np.ndarray:
    """Return a row before centring and scaling of its columns."""
    return np.asarray(record * metadata["scale"] + np.asarray(metadata["centre"])) if "scale" in metadata else record


def class_name(metadata: Mapping[str, Any], label: int) -> str:
    """Return the name of a class, or its number if the pool has no names."""
    classes = metadata.get("classes") or []
    return str(classes[label]) if label < len(classes) else str(label)


def _shown_signal(results: Results, finding: Finding) -> Signal | None:
    """Return the explanation that the setting's strongest explanation attack reads, if it can be computed for a few records."""
    leak = finding.strongest.get("explanations")
    shown = read_signal(leak.signal) if leak and results.spec.explainers else None
    name = shown.explainer if shown else None
    base, _ = release_of(name or "")
    if base in explainers and explainers[base].needs_training_records:
        return None  # this explainer needs all training records
    return shown if name else None  # several explanations have no one picture


def _attributions(
    results: Results,
    finding: Finding,
    architecture: Path,
    asked: Records,
    targets: np.ndarray,
    member: np.ndarray,
    shown: Signal,
) -> list[list[np.ndarray]]:
    """Return every record's attributions by the first of the targets that trained on it and the first that did not.

    The lists are shorter where a model is no longer on disk.
    """
    from mia_audit.learners.protocol import (
        Attribution,
        Compute,
        ExplainedModel,
        ExplanationRequest,
        open_learner,
        released,
    )
    from mia_audit.training.stored import model_folder

    folder = results.root / finding.setting.path / "models"
    wanted: dict[int, list[tuple[int, int]]] = {}
    for i, trained_on in enumerate(member):
        for position, inside in enumerate((True, False)):
            models = targets[trained_on == inside]
            if len(models):
                wanted.setdefault(int(models[0]), []).append((i, position))
    pairs: list[dict[int, np.ndarray]] = [{} for _ in member]
    _, learner = open_learner(architecture, Compute("cpu"))
    options = {**results.spec.explainers, "explain": [shown.quantity]}
    methods = results.spec.explainers.get("methods", ())
    base, release = release_of(str(shown.explainer))
    explainer = next((name for name in methods if name.replace("+", "-") == base), base)
    request = ExplanationRequest([explainer], options, int(results.spec.config.get("seed", 0)))
    for shadow, cells in sorted(wanted.items()):
        kept = model_folder(folder, shadow)
        model = learner.load(kept) if kept.is_dir() else None
        if not isinstance(model, ExplainedModel):
            continue
        rows = [i for i, _ in cells]
        full = model.attributions(asked[rows], request)
        key = Attribution(named_release(explainer, release), str(shown.quantity))
        attributions = released(full, request, asked.numbers[rows].tolist())[key]
        for (i, position), attribution in zip(cells, attributions.astype(np.float64), strict=True):
            pairs[i][position] = attribution
    return [[pair[position] for position in sorted(pair)] for pair in pairs]


COVER = 0.75
"""Opacity of the largest attribution."""


def overlaid(results: Results, group: Sequence[Finding], interpretation: Interpretation) -> list[dict[str, Any]]:
    """Return every explainer's pictures of a group, a row per record and a column per setting; empty for tables."""
    place = group[0].setting.group
    metadata = results.pool_metadata(place[0]) or {}
    if metadata.get("kind") != "image" or not results.spec.explanation_maps:
        return []
    stored = np.load(results.root / "pools" / place[0] / "records.npy", mmap_mode="r")
    maps = results.maps(place)
    return [
        {
            "explainer": one.label,
            "settings": [titled(finding.setting) for finding in group],
            "rows": [
                {
                    "record": record,
                    "picture": record_picture(stored[record]),
                    "cells": [_overlaid_cell(rows, finding, record, stored[record], metadata) for finding in group],
                }
                for record in rows["record"].unique(maintain_order=True).to_list()
            ],
        }
        for one in interpretation.drawn
        for rows in [maps.filter(explainer=one.explainer, quantity=one.quantity)]
        if not rows.is_empty()
    ]


def _overlaid_cell(
    rows: pl.DataFrame, finding: Finding, record: int, stored: UInt8[np.ndarray, "C H W"], metadata: Mapping[str, Any]
) -> dict[str, str]:
    row = rows.filter(**finding.setting.within_group, record=record).row(0, named=True)
    values = np.reshape(row["map"], (row["height"], row["width"]))
    return {"picture": data_uri(overlay(stored, values)), "class": str(metadata["classes"][row["class"]])}


def overlay(record: UInt8[np.ndarray, "C H W"], values: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "H W 3"]:
    """Draw a map over a record in grey: blue below 0, orange above, larger values more opaque.

    Values are relative to the map's largest absolute value. A map of another size is resized to the nearest cells.
    """
    height, width = record.shape[1:]
    rows, columns = (np.arange(size) * cells // size for size, cells in zip((height, width), values.shape, strict=True))
    shares = values[np.ix_(rows, columns)] / (np.abs(values).max() or 1.0)
    grey = np.repeat(record.mean(axis=0)[..., None], 3, axis=2)
    return blend(grey, shares, COVER * np.abs(shares))
