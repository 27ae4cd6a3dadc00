"""Explanations of a few records by the models of several settings that share their training sets, measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.compute.memory import Halving
from mia_audit.errors import UserError
from mia_audit.explain.attribute import attribute
from mia_audit.explain.catalogue import explainers
from mia_audit.interpretability.catalogue import measures
from mia_audit.interpretability.maps import at_inputs, to_maps
from mia_audit.interpretability.probe import Probe
from mia_audit.seeds import generator


@dataclass(frozen=True)
class Task:
    """What is measured: explainers by name with their options (those of `explain.families`), measures by name with theirs."""

    explainers: Sequence[str]
    explaining: Mapping[str, Any]
    measures: Sequence[str]
    measuring: Mapping[str, Any]
    seed: int
    batch: int


@dataclass(frozen=True)
class Sample:
    """The records explained: numbers in the pool, inputs as the models take them, labels."""

    records: Int[np.ndarray, " n"]
    inputs: Float[Tensor, "n ..."]
    labels: Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Explained:
    """One model's explanations of the sample by one explainer: the class explained, the maps, and what the model itself was asked."""

    classes: Int[np.ndarray, " n"]
    maps: Float[np.ndarray, "n ..."]
    probed: dict[str, Float[np.ndarray, "n ..."]]

    @property
    def curves(self) -> dict[str, Float[np.ndarray, "n steps"]]:
        """Those measures of `probed` that are curves: their heights at equal steps."""
        return {name: values for name, values in self.probed.items() if values.ndim == 2}


Key = tuple[str, str]
"""Explainer and quantity explained."""


def draw_sample(records: int, wanted: int, dataset: str, seed: int) -> Int[np.ndarray, " n"]:
    """Draw the numbers of the records that are explained, sorted; the same for every architecture of a data set."""
    return np.sort(generator(seed, "interpretability", dataset).permutation(records)[:wanted])


def shown_rows(labels: Int[np.ndarray, " n"], wanted: int) -> list[int]:
    """Choose the rows of a sample whose maps are kept: of every class in turn the first that is not yet chosen."""
    by_class = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    turns = [rows[turn] for turn in range(max(map(len, by_class), default=0)) for rows in by_class if turn < len(rows)]
    return sorted(turns[:wanted])


def explained(model: nn.Module, sample: Sample, task: Task) -> dict[Key, Explained]:
    """Explain the sample by one model in eval mode, with frozen parameters, and ask it what the measures ask a model.

    Raises UserError for attributions that have no place in the record.
    """
    parts: dict[Key, list[Explained]] = {}
    at_once = Halving(task.batch)
    start = 0
    while start < len(sample.labels):
        for key, found in at_once(partial(_explained_part, model, sample, task, start)).items():
            parts.setdefault(key, []).append(found)
        start += at_once.size
    return {key: _joined(found) for key, found in parts.items()}


def _explained_part(model: nn.Module, sample: Sample, task: Task, start: int, size: int) -> dict[Key, Explained]:
    rows = slice(start, start + size)
    part = Sample(sample.records[rows], sample.inputs[rows], sample.labels[rows])
    return dict(_explained_batch(model, part, replace(task, batch=size)))


def _joined(parts: list[Explained]) -> Explained:
    probed = {name: np.concatenate([part.probed[name] for part in parts]) for name in parts[0].probed}
    return Explained(
        np.concatenate([part.classes for part in parts]), np.concatenate([part.maps for part in parts]), probed
    )


def _explained_batch(model: nn.Module, sample: Sample, task: Task) -> Iterator[tuple[Key, Explained]]:
    device = sample.inputs.device
    records = sample.records.tolist()
    truth = torch.from_numpy(sample.labels.astype(np.int64)).to(device)
    with torch.no_grad():
        predicted = model(sample.inputs).argmax(dim=1)
    classes = truth if task.explaining["explained_class"] == "true" else predicted
    asked = [name for name in task.measures if measures[name].probes]
    for explainer in task.explainers:
        given = (explainer, task.explaining, task.seed)
        for quantity, found in attribute(model, sample.inputs, truth, records, *given).items():
            try:
                attributions = at_inputs(found, tuple(sample.inputs.shape[1:]))
            except ValueError as error:
                raise UserError(f"explainer '{explainer}': {error}: they cannot be laid over a record") from None

            def explain(
                points: Tensor, rows: Sequence[int], explainer: str = explainer, quantity: str = quantity
            ) -> Tensor:
                options = {**task.explaining, "explained_class": "true", "explain": [quantity]}
                at = attribute(
                    model, points, classes[list(rows)], [records[row] for row in rows], explainer, options, task.seed
                )
                return at_inputs(at[quantity], tuple(sample.inputs.shape[1:])).to(points)

            maps = to_maps(attributions)
            probe = Probe(
                model, sample.inputs, records, classes, quantity, attributions.to(sample.inputs),
                explainers[explainer].multiplied, explain, task.seed, task.batch,
            )  # fmt: skip
            told = {"probe": probe, "maps": maps, **task.measuring}
            yield (
                (explainer, quantity),
                Explained(classes.cpu().numpy(), maps, {name: measures[name].of(told) for name in asked}),
            )


def alone(one: Explained, sample: Sample, task: Task) -> dict[str, Float[np.ndarray, " n"]]:
    """Measure one model's explanations by themselves."""
    given = {"maps": one.maps, "labels": sample.labels, **task.measuring}
    own = [name for name in task.measures if not measures[name].compares and not measures[name].probes]
    areas = {name: below(heights) for name, heights in one.curves.items()}
    return {name: measures[name].of(given) for name in own} | one.probed | areas


def below(heights: Float[np.ndarray, "n steps"]) -> Float[np.ndarray, " n"]:
    """Return the areas below curves over [0, 1] with heights at equal steps, by trapezoids."""
    return np.asarray(np.trapezoid(heights, dx=1 / (heights.shape[1] - 1), axis=1))


def beside(one: Explained, other: Explained, task: Task) -> dict[str, Float[np.ndarray, " n"]]:
    """Measure how alike two models' explanations are."""
    given = {"maps": one.maps, "other": other.maps, **task.measuring}
    return {name: measures[name].of(given) for name in task.measures if measures[name].compares}


def defined(names: Sequence[str], shape: tuple[int, ...]) -> list[str]:
    """Leave out the measures of images where records of the shape are none."""
    return [name for name in names if len(shape) == 3 or not measures[name].images]
