"""The most exposed records of an audit: who they are, how often they are caught, and what explanations of them look like."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.evaluation.exposure import exposure
from mia_audit.explain import explainers
from mia_audit.report.findings import Finding, Leak
from mia_audit.report.pictures import attribution_picture, attribution_scale, record_picture
from mia_audit.report.signals import Signal, read_signal
from mia_audit.report.words import significant
from mia_audit.storage import read_table

if TYPE_CHECKING:
    from mia_audit.report.results import Results

FEATURES = 6
"""A row of a table is shown by so many features, those with the largest attributions."""


@dataclass(frozen=True)
class Bar:
    """A feature of a row: its value, and its attribution by either model in shares of the largest one shown."""

    feature: str
    value: str
    inside: float
    outside: float


@dataclass
class Exposed:
    """One record: how its membership score moves when it is trained on, and how often it is caught at the headline FPR."""

    record: int
    rank: int
    gap: float
    percentile: float
    caught: int
    inside: int
    false_alarms: int
    outside: int
    label: str = ""
    picture: str = ""
    maps: tuple[str, ...] = ()
    """Attributions by a model that trained on the record and by one that did not, on one scale."""
    bars: list[Bar] = field(default_factory=list)


def most_exposed(results: Results, found: Finding, fpr: float | None) -> tuple[Leak, list[Exposed]] | None:
    """List the records whose score under the setting's strongest attack moves most with their membership; None without any."""
    ranked = sorted(found.strongest.values(), key=lambda leak: -leak.auc.mean())
    if not ranked or not results.spec.exposed:
        return None
    leak = ranked[0]
    scored = results.scored(found.setting, *leak.key)
    records, scores, member = scored.record, scored.score, scored.member
    key = (found.setting, leak.key)
    columns = results.exposures[key] if key in results.exposures else exposure(scores, member)
    called = _called(scores, member, fpr) if fpr is not None else np.zeros_like(member)
    order = np.argsort(columns["rank"])[: results.spec.exposed]
    order = order[np.isfinite(columns["gap"][order])]
    exposed = [
        Exposed(
            record=int(records[i]),
            rank=int(columns["rank"][i]),
            gap=float(columns["gap"][i]),
            percentile=float(columns["percentile"][i]),
            caught=int((called[i] & member[i]).sum()),
            inside=int((member[i] & ~np.isnan(scores[i])).sum()),
            false_alarms=int((called[i] & ~member[i]).sum()),
            outside=int((~member[i] & ~np.isnan(scores[i])).sum()),
        )
        for i in order
    ]
    membership = {int(records[i]): dict(zip(scored.target.tolist(), member[i].tolist(), strict=True)) for i in order}
    _illustrate(results, found, exposed, membership)
    return leak, exposed


def _called(scores: np.ndarray, member: np.ndarray, fpr: float) -> np.ndarray:
    """Return which cells are called members at the largest threshold of each target whose FPR is at most `fpr`."""
    called = np.zeros_like(member)
    for k in range(scores.shape[1]):
        outside = np.sort(scores[~member[:, k] & ~np.isnan(scores[:, k]), k])
        allowed = math.floor(fpr * len(outside) + 1e-9)
        if allowed < len(outside):
            called[:, k] = scores[:, k] > outside[len(outside) - 1 - allowed]
    return called


def _illustrate(
    results: Results, found: Finding, exposed: list[Exposed], membership: Mapping[int, Mapping[int, bool]]
) -> None:
    """Add label, picture and attributions of every record, as far as the audit has its pool and its models."""
    setting = found.setting
    facts = results.pool_facts(setting.dataset)
    pool = results.root / "pools" / setting.dataset
    if facts is None or not (pool / "records.npy").exists():
        return
    labels = read_table(pool / "records.parquet", "records", ["label"])["label"].to_numpy()
    stored = np.load(pool / "records.npy", mmap_mode="r")
    numbers = [one.record for one in exposed]
    records = np.stack([stored[number] for number in numbers])
    for one, record in zip(exposed, records, strict=True):
        one.label = _class_name(facts, int(labels[one.record]))
        if facts["kind"] == "image":
            one.picture = record_picture(record)
    shown = _shown_signal(results, found)
    architecture = results.root / setting.dataset / setting.architecture / "architecture.json"
    if shown is None or not architecture.exists():
        return
    built = json.loads(architecture.read_text(encoding="utf-8"))
    pairs = _attributions(results, found, built, facts, records, labels[numbers], numbers, membership, shown)
    for one, record, pair in zip(exposed, records, pairs, strict=True):
        if len(pair) == 2:
            _show(one, record, pair, facts)


def _show(one: Exposed, record: np.ndarray, pair: Sequence[np.ndarray], facts: Mapping[str, Any]) -> None:
    if facts["kind"] == "image":
        scale = attribution_scale(list(pair))
        one.maps = tuple(attribution_picture(attribution, scale) for attribution in pair)
        return
    inside, outside = (
        attribution.reshape(-1, record.size).sum(axis=0) for attribution in pair
    )  # several maps: their sum
    largest = np.maximum(np.abs(inside), np.abs(outside))
    features = facts.get("features") or [f"feature {i}" for i in range(len(largest))]
    one.bars = [
        Bar(
            features[i], significant(float(record[i])), *(float(a[i] / (largest.max() or 1)) for a in (inside, outside))
        )
        for i in np.argsort(-largest, kind="stable")[:FEATURES]
    ]


def _class_name(facts: Mapping[str, Any], label: int) -> str:
    classes = facts.get("classes") or []
    return str(classes[label]) if label < len(classes) else str(label)


def _shown_signal(results: Results, found: Finding) -> Signal | None:
    """Return the explanation that the setting's strongest explanation attack reads, if the audit knows how to compute it."""
    leak = found.strongest.get("explanations")
    shown = read_signal(leak.signal) if leak and results.spec.explainers else None
    name = shown.explainer if shown else None
    if name in explainers and explainers[str(name)].of_members:
        return None  # computed from all training records: not for a few cards
    return shown


def _attributions(
    results: Results,
    found: Finding,
    architecture: Mapping[str, Any],
    facts: Mapping[str, Any],
    records: np.ndarray,
    labels: np.ndarray,
    numbers: Sequence[int],
    membership: Mapping[int, Mapping[int, bool]],
    shown: Signal,
) -> list[list[np.ndarray]]:
    """Return every record's attributions by the first model that trained on it and the first that did not.

    A model that is no longer on disk leaves its records' lists short.
    """
    import torch

    from mia_audit.explain.attribute import attribute
    from mia_audit.models import load, taken_by, to_input

    folder = results.root / found.setting.path / "models"
    wanted: dict[int, list[tuple[int, int]]] = {}
    for i, number in enumerate(numbers):
        for position, inside in enumerate((True, False)):
            models = [shadow for shadow, trained_on in membership[number].items() if trained_on == inside]
            if models:
                wanted.setdefault(models[0], []).append((i, position))
    pairs: list[dict[int, np.ndarray]] = [{} for _ in numbers]
    inputs = to_input(records, taken_by(architecture, facts), architecture.get("input_shape"))
    options = {**results.spec.explainers, "explain": [shown.quantity]}
    methods = results.spec.explainers.get("methods", ())
    explainer = next((name for name in methods if name.replace("+", "-") == shown.explainer), str(shown.explainer))
    for shadow, cells in sorted(wanted.items()):
        weights = _weights(folder, shadow)
        if weights is None:
            continue
        model = load(architecture, weights)
        rows = [i for i, _ in cells]
        given = (inputs[rows], torch.as_tensor(labels[rows]).long(), [numbers[i] for i in rows])
        seed = int(results.spec.config.get("seed", 0))
        attributions = attribute(model, *given, explainer, options, seed)[str(shown.quantity)]
        for (i, position), attribution in zip(cells, attributions.double().numpy(), strict=True):
            pairs[i][position] = attribution
    return [[pair[position] for position in sorted(pair)] for pair in pairs]


def _weights(folder: Path, shadow: int) -> Path | None:
    found = sorted(folder.glob(f"*/shadow-{shadow}.safetensors"))
    return found[0] if found else None
