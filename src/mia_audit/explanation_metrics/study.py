"""Explain a few records by models, convert attributions to maps at the resolution of the inputs, and measure these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.explain.batch import QUANTITIES, Function
from mia_audit.explain.catalogue import explainers
from mia_audit.explain.release import release_of
from mia_audit.explanation_metrics.catalogue import DRAWS, measures
from mia_audit.learners.protocol import (
    Attribution,
    ExplainedModel,
    ExplanationRequest,
    TorchBackedModel,
    TrainedModel,
    released,
)
from mia_audit.learners.torch_module import confidence
from mia_audit.runtime.device import AdaptiveBatchSize
from mia_audit.seeds import generator
from mia_audit.training.task import Records


@dataclass(frozen=True)
class MetricsTask:
    """The request: explainers by name with their options (from `signals.families`), and measures by name with their options.

    `shape` is that of a model's inputs, [C, H, W] or [d], to which attributions are converted.
    """

    explainers: Sequence[str]
    explaining: Mapping[str, Any]
    measures: Sequence[str]
    measuring: Mapping[str, Any]
    seed: int
    batch: int
    shape: tuple[int, ...]
    model: int | None = None
    """The model's number, which keys random draws of explainers."""
    confidence: bool = False
    """Whether curves are those of the class's logit-scaled confidence, and not of its probability."""


@dataclass(frozen=True)
class ExplainedSample:
    """One model's explanations of the sample by one explainer: the explained classes, the maps, and the measures that query the model.

    `full` are the maps before they are released in another form; the maps themselves if they are not.
    """

    classes: Int[np.ndarray, " n"]
    maps: Float[np.ndarray, "n ..."]
    probed: dict[str, Float[np.ndarray, "n ..."]]
    full: Float[np.ndarray, "n ..."]

    @property
    def curves(self) -> dict[str, Float[np.ndarray, "n steps"]]:
        """The measures of `probed` that are curves, as heights at equal steps."""
        return {name: values for name, values in self.probed.items() if values.ndim == 2}


def draw_sample(records: int, wanted: int, dataset: str, seed: int) -> Int[np.ndarray, " n"]:
    """Draw the numbers of the records to explain, sorted; they are the same for all architectures on a data set."""
    return np.sort(generator(seed, DRAWS, dataset).permutation(records)[:wanted])


def shown_rows(labels: Int[np.ndarray, " n"], wanted: int) -> list[int]:
    """Choose the rows of a sample whose maps are kept: the first row of every class, then the second of every class, and so on."""
    by_class = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    turns = [rows[turn] for turn in range(max(map(len, by_class), default=0)) for rows in by_class if turn < len(rows)]
    return sorted(turns[:wanted])


def explained(model: TrainedModel, sample: Records, task: MetricsTask) -> dict[Attribution, ExplainedSample]:
    """Explain the sample by one model, and compute the measures that query the model.

    Raises UserError for a model without attributions, for attributions that do not match the coordinates of a record,
    and for a measure that needs a torch module if the model is not one.
    """
    parts: dict[Attribution, list[ExplainedSample]] = {}
    at_once = AdaptiveBatchSize(task.batch)
    start = 0
    while start < len(sample):
        for key, part in at_once(partial(_explained_batch, model, sample, task, start)).items():
            parts.setdefault(key, []).append(part)
        start += at_once.size
    return {key: _joined(arrays) for key, arrays in parts.items()}


def _joined(parts: list[ExplainedSample]) -> ExplainedSample:
    probed = {name: np.concatenate([part.probed[name] for part in parts]) for name in parts[0].probed}
    classes, maps, full = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("classes", "maps", "full")
    )
    return ExplainedSample(classes, maps, probed, full)


def _explained_batch(
    model: TrainedModel, sample: Records, task: MetricsTask, start: int, size: int
) -> dict[Attribution, ExplainedSample]:
    sample, task = sample[start : start + size], replace(task, batch=size)
    parts = {}
    if not isinstance(model, ExplainedModel):
        raise UserError(
            "explanation_metrics: the model has no attributions: exclude its architecture from these measures"
        )
    predicted = model.logits(sample).argmax(axis=1)
    classes = sample.labels.astype(np.int64) if task.explaining["explained_class"] == "true" else predicted
    probing = [name for name in task.measures if measures[name].probes]
    if probing and not isinstance(model, TorchBackedModel):
        raise UserError(f"explanation_metrics.measures: '{probing[0]}' needs a torch module, but the model is not one")
    request = ExplanationRequest(task.explainers, task.explaining, task.seed, model=task.model)
    for own, attributions in model.attributions(sample, request).items():
        full = to_maps(_at_inputs(attributions, own, task))
        for key, shipped in released({own: attributions}, request, sample.numbers.tolist()).items():
            values = _at_inputs(shipped, key, task)
            maps = to_maps(values)
            given = {"maps": maps, **task.measuring}
            if isinstance(model, TorchBackedModel):
                given["probe"] = _probe(model, sample, classes, key=key, values=values, task=task)
            probed = {name: measures[name].of(given) for name in probing}
            parts[key] = ExplainedSample(classes, maps, probed, full)
    return parts


def _at_inputs(attributions: np.ndarray, key: Attribution, task: MetricsTask) -> Tensor:
    try:
        return at_inputs(torch.from_numpy(attributions), task.shape)
    except ValueError as error:
        raise UserError(
            f"explainer '{key.explainer}': {error}: attributions do not match a record's coordinates"
        ) from None


def _probe(
    model: TorchBackedModel, sample: Records, classes: np.ndarray, key: Attribution, values: Tensor, task: MetricsTask
) -> Probe:
    inputs = model.inputs(sample)[0 : len(sample)]
    options = {**task.explaining, "explained_class": "true", "explain": [key.quantity]}
    explainer, _ = release_of(key.explainer)
    request = ExplanationRequest([explainer], options, task.seed, model=task.model)

    def explain(points: Tensor, rows: Sequence[int]) -> Tensor:
        chosen = list(rows)
        attributions = model.attributions_at(points, classes[chosen], sample.numbers[chosen], request)
        full = {own: values.cpu().numpy() for own, values in attributions.items()}
        shipped = released(full, request, sample.numbers[chosen].tolist())[key]
        return at_inputs(torch.from_numpy(shipped), task.shape).to(points)

    return Probe(
        model=model.module,
        inputs=inputs,
        records=sample.numbers.tolist(),
        classes=torch.from_numpy(classes).to(inputs.device),
        quantity=key.quantity,
        attributions=values.to(inputs),
        multiplied=explainers[explainer].multiplied,
        explain=explain,
        seed=task.seed,
        batch=task.batch,
        on_curves=confidence if task.confidence else QUANTITIES["probability"].value,
    )


def alone(one: ExplainedSample, labels: Int[np.ndarray, " n"], task: MetricsTask) -> dict[str, Float[np.ndarray, " n"]]:
    """Return the measures of one model's explanations that need no other model."""
    given = {"maps": one.maps, "labels": labels, **task.measuring}
    own = [name for name in task.measures if not measures[name].compares and not measures[name].probes]
    areas = {name: below(heights) for name, heights in one.curves.items()}
    return {name: measures[name].of(given) for name in own} | one.probed | areas


def below(heights: Float[np.ndarray, "n steps"]) -> Float[np.ndarray, " n"]:
    """Return the areas below curves over [0, 1] with heights at equal steps, by the trapezoidal rule."""
    return np.asarray(np.trapezoid(heights, dx=1 / (heights.shape[1] - 1), axis=1))


def beside(one: ExplainedSample, other: ExplainedSample, task: MetricsTask) -> dict[str, Float[np.ndarray, " n"]]:
    """Return the measures that compare two models' explanations."""
    given = {"maps": one.maps, "other": other.maps, **task.measuring}
    return {name: measures[name].of(given) for name in task.measures if measures[name].compares}


def defined(names: Sequence[str], shape: tuple[int, ...]) -> list[str]:
    """Return the names of measures that are defined for records of this shape; some are defined only for images."""
    return [name for name in names if len(shape) == 3 or not measures[name].images]


@dataclass(frozen=True)
class Probe:
    """Explanations of n records by one torch module, and functions for measures that test them.

    `attributions` have the shape of `inputs`; if they are `multiplied` by the input, like input × gradient, they are in
    units of the explained quantity, otherwise in units of its gradient. `explain` returns attributions at other points,
    for the classes of given rows of the records.
    """

    model: nn.Module
    inputs: Float[Tensor, "n ..."]
    records: Sequence[int]
    classes: Int[Tensor, " n"]
    quantity: str
    attributions: Float[Tensor, "n ..."]
    multiplied: bool
    explain: Callable[[Float[Tensor, "b ..."], Sequence[int]], Float[Tensor, "b ..."]]
    seed: int
    batch: int
    on_curves: Function = QUANTITIES["probability"].value
    """What curves of deletion and insertion show of logits [b, C] and classes [b]."""

    def value(self, points: Float[Tensor, "b ..."], classes: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Return the quantity explained at points, float64."""
        with torch.no_grad():
            return QUANTITIES[self.quantity].value(self.model(points).double(), classes)

    def height(self, points: Float[Tensor, "b ..."], classes: Int[Tensor, " b"]) -> Float[np.ndarray, " b"]:
        """Return the height of a curve at points, float64, computed batch by batch."""
        parts = []
        with torch.no_grad():
            for start in range(0, len(points), self.batch):
                logits = self.model(points[start : start + self.batch]).double()
                parts.append(self.on_curves(logits, classes[start : start + self.batch]))
        return torch.cat(parts).cpu().numpy()

    def rows(self, times: int) -> list[list[int]]:
        """Split the records into lists that fit into a batch when every record is repeated `times` times."""
        size = max(1, self.batch // times)
        return [list(range(start, min(start + size, len(self.inputs)))) for start in range(0, len(self.inputs), size)]

    def draws(self, purpose: str, rows: Sequence[int], times: int) -> Float[Tensor, "b ..."]:
        """Draw `times` points uniformly from [0, 1) for each record in turn. The draws depend only on the record."""
        shape = (times, *self.inputs.shape[1:])
        drawn = [
            generator(self.seed, DRAWS, purpose, self.records[row]).random(shape, dtype=np.float32) for row in rows
        ]
        return self.inputs.new_tensor(np.concatenate(drawn))


def at_inputs(attributions: Float[Tensor, "n ..."], shape: tuple[int, ...]) -> Float[Tensor, "n ..."]:
    """Convert attributions of another shape to the shape of the inputs.

    Attributions of a layer, [n, c, h, w], or of several maps side by side are summed over channels, interpolated
    bilinearly to the size of the input, and divided equally among its channels. If a table's record has several rows of
    attributions, [n, t, d], the rows are summed. Raises ValueError for attributions that do not correspond to positions
    of the input.
    """
    if attributions.shape[1:] == shape:
        return attributions
    if len(shape) == 1 and attributions.ndim == 3 and attributions.shape[2:] == shape:
        return attributions.sum(dim=1)
    if len(shape) == 3 and attributions.ndim == 4:
        summed = attributions.sum(dim=1, keepdim=True)
        enlarged = F.interpolate(summed, size=shape[1:], mode="bilinear", align_corners=False)
        return enlarged.expand(-1, shape[0], -1, -1) / shape[0]
    raise ValueError(f"attributions of shape {list(attributions.shape[1:])} for inputs of shape {list(shape)}")


def to_maps(attributions: Float[Tensor, "n ..."]) -> Float[np.ndarray, "n ..."]:
    """Return attributions summed over channels: [n, H, W] for images, [n, d] for tables, float64."""
    values = attributions.double()
    return (values.sum(dim=1) if values.ndim == 4 else values).cpu().numpy()
