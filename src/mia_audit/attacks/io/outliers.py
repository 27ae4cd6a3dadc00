"""Cells and models that no ordinary training produces, such as a loss of 1e6 among losses of 1.

A likelihood ratio shares scales between records and models, so that one such cell changes the scores of all the others.
It is therefore read as the median of its record. An outlier lies far from everything that its model and its record have
elsewhere, on the scale on which attacks read the signal. Where other models have such values of the record, it is read as
the farthest ordinary value of its model. In ordinary audits no cell does, and nothing is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError, few
from mia_audit.signals.name import Reading, columns_of, median, ranks_of

if TYPE_CHECKING:
    from mia_audit.signals.name import Cells, Columns, Signal

OUTLIERS = "outliers"
"""The metadata key of metrics.parquet for the sentences on outliers, by signal."""

CONSTANT = "constant"
"""The metadata key of metrics.parquet for the names of signals that are the same for every model and record."""

LEFT_OUT = "by attacks.leave_out"
"""The reason why a model is missing from scores, among those of diverged models."""

OF_MODELS, OF_RECORD = 2.5, 8.0
"""An outlier's least distance from the median of its model, as a multiple of the farthest record's in a typical model and of
the distance that 1 % of its own records exceed, and from the median of its record, as a multiple of the distance that a
quarter of the models exceed."""

JUMP = 100.0
"""Up to a quarter of a model's records are left out of these distances if they are this many times as far as all the others."""

APART, WIDE = 3.0, 30.0
"""A model is named if its median is this many of the models' 99 % distances from the others, or its distance is this many times theirs or less."""

FACTOR = 3.0
"""The smallest factor between two scales of a positive signal: norms of one recipe differ by less where records hardly differ."""

COMPARED = 2000
"""Number of records by which the order of models' records is compared."""
RANKED, ASTRAY, SURE = 0.3, 0.2, 6.0
"""If models rank records alike, with at least this typical correlation, and this many of its standard errors, a model is
named whose own is this share of it or less."""
FEW_VALUES = 10
"""Models with more different values than this are copies of each other if they are equal in every record."""


class Outliers:
    """The sentences on outliers of the signals that were read, by signal."""

    def __init__(self) -> None:
        self.sentences: dict[str, list[str]] = {}
        self._constant: list[str] = []
        self._ordinary: set[str] = set()
        """The signals in which nothing was replaced, which a file may be asked for again."""

    def replaced(self, signal: Signal, queries: Sequence[Cells], models: Sequence[int] | np.ndarray) -> list[Cells]:
        """Return the queries of a signal, [N, K] each, with the median of its record for every outlier; name outliers on stderr once.

        A signal is that of one file: its values are the same every time.
        """
        if signal.name in self._ordinary:
            return list(queries)
        if all(values.min() == values.max() for values in queries):
            found = [(values, [self._nothing(signal, values)]) for values in queries]
        else:
            found = [_replaced(signal, values, models) for values in queries]
        if all(one is values for (one, _), values in zip(found, queries, strict=True)):
            self._ordinary.add(signal.name)
        sentences = list(dict.fromkeys(sentence for _, some in found for sentence in some))
        if sentences and signal.name not in self.sentences:
            self.sentences[signal.name] = sentences
            for sentence in sentences:
                print(f"mia-audit: warning: {sentence}", file=sys.stderr)
        return [values for values, _ in found]

    def _nothing(self, signal: Signal, values: Cells) -> str:
        """Note a signal that is the same everywhere, and say so."""
        if signal.name not in self._constant:
            self._constant.append(signal.name)
        return f"{signal.name}: every value is {values.flat[0]:g}, for every model and record, so that nothing can be read from it"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of metrics.parquet; empty without outliers."""
        found: dict[str, Any] = {OUTLIERS: self.sentences, CONSTANT: self._constant}
        return {key: value for key, value in found.items() if value}


def _replaced(signal: Signal, values: Cells, models: Sequence[int] | np.ndarray) -> tuple[Cells, list[str]]:
    scaled: Columns = Reading(signal, [values]).prepared(columns_of)  # one model at a time, for the sake of memory
    far: list[tuple[int, int]] = []
    shared: dict[tuple[int, int], float] = {}
    described = np.array([_spread(scaled.at(model)) for model in range(values.shape[1])])
    centres, spread, usual, reach, farthest = described.T
    limit = OF_MODELS * np.maximum(usual, np.median(reach))
    for model in np.flatnonzero(farthest > limit).tolist():
        column, edge = scaled.at(model), max(reach[model], np.median(reach))
        distances = np.abs(column - centres[model])
        inside = np.flatnonzero(distances <= edge)
        lowest, highest = (values[inside[end(column[inside])], model] for end in (np.argmin, np.argmax))
        for record in np.flatnonzero(distances > limit[model]).tolist():
            (row,) = scaled[record : record + 1]
            around = np.abs(row - np.median(row))
            if around[model] > OF_RECORD * max(np.quantile(around, 0.75, method="lower"), spread[model]):
                far.append((record, model))
            elif distances[record] > JUMP * edge > 0:
                shared[record, model] = float(highest if column[record] > centres[model] else lowest)
    sentences = [
        *_models(signal, centres, usual, models),
        *_copies(signal, values, described, models),
        *(() if signal.channel == "explanations" else _astray(signal, scaled, models)),
    ]
    if far:
        sentences.append(
            f"{signal.name}: {_cells(values, far, models)} is far from all that model and record have elsewhere, and read as the record's median"
        )
    if shared:
        sentences.append(
            f"{signal.name}: {_cells(values, [*shared], models)} is far from all that the model has elsewhere, as in other models, and"
            " read as the model's farthest ordinary value: see whether such values of the record are right"
        )
    if not (far or shared):
        return values, sentences
    repaired = values.copy(order="K")
    for record, model in far:
        repaired[record, model] = np.median(values[record])
    for cell, value in shared.items():
        repaired[cell] = value
    return repaired, sentences


def _cells(values: Cells, cells: Sequence[tuple[int, int]], models: Sequence[int] | np.ndarray) -> str:
    """Name cells by their value, model and record."""
    return few([f"{values[record, model]:g} at model {models[model]}, record {record}" for record, model in cells])


def _spread(column: np.ndarray) -> np.ndarray:
    """Return a model's median, the median, the 99 % quantile and the largest of the ordinary distances from it, and the largest of all."""
    centre = median(column)
    distances = np.sort(np.abs(column - centre))
    first = 3 * len(distances) // 4
    upper = distances[first:]
    jumps = np.flatnonzero((upper[:-1] > 0) & (upper[1:] > JUMP * upper[:-1]))
    ordinary = distances[: first + jumps[0] + 1] if len(jumps) else distances
    return np.array([centre, *np.quantile(ordinary, (0.5, 0.99, 1.0), method="lower"), distances[-1]])


def _models(
    signal: Signal, centres: np.ndarray, distances: np.ndarray, models: Sequence[int] | np.ndarray
) -> list[str]:
    """Name the models of another scale than most others."""
    typical, middle = np.median(distances), np.median(centres)
    least = np.log(FACTOR) if signal.scale == "positive" else 0.0
    wide = (distances > WIDE * typical) | (distances * WIDE < typical)
    odd = (np.abs(centres - middle) > max(APART * typical, least)) | wide & (np.maximum(distances, typical) > least)
    numbers = [str(model) for model in np.asarray(models)[odd]]
    if 2 * len(numbers) >= len(odd):
        said = "the models' values are on different scales: see whether all are of one recipe and unit"
        return [f"{signal.name}: {said}"]
    named = f"model{'s' * (len(numbers) > 1)} {few(numbers)}"
    leave = f"(attacks.leave_out, --leave-out {' '.join(numbers[:10])})"
    said = f"the values of {named} are on another scale than those of the other models: leave out what is of another recipe or unit {leave}"
    return [f"{signal.name}: {said}"] if numbers else []


def _copies(signal: Signal, values: Cells, described: np.ndarray, models: Sequence[int] | np.ndarray) -> Iterator[str]:
    """Name models whose values are equal in every record."""
    _, groups = np.unique(described, axis=0, return_inverse=True)
    for group in np.flatnonzero(np.bincount(groups) > 1):
        first, *others = np.flatnonzero(groups == group).tolist()
        same = [other for other in others if (values[:, first] == values[:, other]).all()]
        if same and len(np.unique(values[:, first])) > FEW_VALUES:
            numbers = few([str(models[model]) for model in (first, *same)])
            yield (
                f"{signal.name}: models {numbers} have the same value in every record, as if they were one model: look for a file that was"
                " given twice, or weights that were not trained"
            )


def _astray(signal: Signal, scaled: Columns, models: Sequence[int] | np.ndarray) -> Iterator[str]:
    """Name the models that do not rank records at all as the others do. Models of one recipe may rank norms of explanations so."""
    some = slice(None, None, max(1, len(scaled) // COMPARED))
    ranks = np.stack([ranks_of(scaled.at(model)[some]).astype(np.float32) for model in range(scaled.shape[1])])
    ranks -= ranks.mean(axis=1, keepdims=True)
    together = ranks.sum(axis=0)
    alike = np.array([_cosine(own, together - own) for own in ranks])
    typical = float(np.median(alike))
    if typical < max(RANKED, SURE / np.sqrt(ranks.shape[1])):
        return
    for model in np.flatnonzero((np.abs(alike) < ASTRAY * typical) & ranks.any(axis=1))[:10]:
        yield (
            f"{signal.name}: model {models[model]} does not rank records as the other models do (correlation {alike[model]:.2f}, theirs"
            f" {typical:.2f}), as if its records were in another order; if they are, leave it out (attacks.leave_out, --leave-out"
            f" {models[model]})"
        )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-30))


def without_left_out(diverged: Mapping[str, str], leave_out: Sequence[int]) -> dict[str, str]:
    """Return the reasons for missing models by number: those of diverged models, and of models that are left out."""
    return {**diverged, **dict.fromkeys(map(str, leave_out), LEFT_OUT)}


def kept_models(models: Sequence[int], leave_out: Sequence[int], where: str) -> np.ndarray | slice:
    """Return the places of the models that are not left out; all of them as a slice. UserError for a number that no model has."""
    for model in leave_out:
        if model not in models:
            raise UserError(f"{where}: leave_out: no model {model}; it has {few([str(one) for one in models])}")
    return np.flatnonzero(~np.isin(models, leave_out)) if leave_out else slice(None)
