"""Histograms of one signal, or of two jointly, on an even grid: the positions of values, and counts of models per record and position.

A value between grid points is divided among the points around it by linear interpolation. The grid and the positions of
the values on it do not depend on membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.signals.columns import Columns, Some

    Sides = Bool[np.ndarray, "K N"]

BINS = {1: (48,), 2: (24, 12)}
"""Grid points of each signal, by the number of signals."""

BY_VALUE = 0.7
"""Grid points are evenly spaced in 0.7 value + 0.3 rank: the grid is finer where values are dense, and still resolves the tails."""

TAIL = 0.0005
"""The share of values beyond either end of the grid; they are counted at the end points."""

SAMPLE = 1 << 18
"""Maximum number of values from which the grid is computed, and of values that are sorted at once."""


class Grid:
    """A grid over signals, and the position of every value: arrays [K models, N records], contiguous by model.

    Only the lowest grid point around a value is kept; the weights of the points are computed from the signals.
    """

    def __init__(self, signals: Sequence[Columns]) -> None:
        """Compute the grid and every value's position on it; signals are [N, K]."""
        records, models = signals[0].shape
        self._signals = signals
        self.shape = BINS[len(signals)]
        self.size = int(np.prod(self.shape))
        """Number of grid points."""
        self._steps = [int(np.prod(self.shape[axis + 1 :])) for axis in range(len(signals))]
        self._points = [grid_points(_sample(signal), bins) for signal, bins in zip(signals, self.shape, strict=True)]
        self.place: Int[np.ndarray, "K N"] = np.zeros((models, records), dtype=np.min_scalar_type(self.size))
        """The lowest of the grid points around each value."""
        for model, place in enumerate(self.place):
            for signal, points, step in zip(signals, self._points, self._steps, strict=True):
                lower = np.clip(np.searchsorted(points, signal.at(model)) - 1, 0, len(points) - 2)
                place += (step * lower).astype(place.dtype)
        self.offsets: Int[np.ndarray, " C"] = np.zeros(1, dtype=np.int32)
        """Offsets of the grid points around a value (2 or 4) from the lowest."""
        for step in self._steps:
            self.offsets = np.add.outer(self.offsets, (0, step)).ravel()

    def shares(self, model: Some, record: Some = slice(None)) -> Float[np.ndarray, "S n"]:
        """Return for every signal how far values lie between the grid points around them, from 0 to 1.

        The values are those of one model at some of the records, or those at as many models as records.
        """
        place = self.place[model, record]
        shares = np.empty((len(self._signals), *place.shape), dtype=np.float32)
        for share, signal, points, step in zip(shares, self._signals, self._points, self._steps, strict=True):
            lower = place // step
            place = place - lower * step
            values = signal.at(model, record)
            values -= points[lower]
            values /= (points[1:] - points[:-1])[lower]
            share[:] = np.clip(values, 0, 1, out=values)
        return shares

    def weights(self, model: Some, record: Some = slice(None)) -> Float[np.ndarray, "n C"]:
        """Return the weight of every value at each of the grid points around it."""
        return weights_of(self.shares(model, record))

    def counts(self, side: Sides, models: Iterable[int], counted: Sides | None = None) -> Float[np.ndarray, "N B"]:
        """Count for each record the models at every grid point: first the models without the record (out), then those with it (in).

        `side` is true where a record was in, [K, N]; cells where `counted` is false are ignored.
        """
        records = self.place.shape[1]
        counts = np.zeros((records, 2 * self.size), dtype=np.float32)
        cells = counts.reshape(-1)
        start = np.arange(records, dtype=np.int64) * (2 * self.size)
        for model in models:
            here = start + self.place[model]
            here += side[model] * np.int64(self.size)
            weights = self.weights(model)
            if counted is not None:
                weights *= counted[model][:, None]
            for offset, weight in zip(self.offsets, weights.T, strict=True):
                cells[here + offset] += weight  # a model has one value per record: no index occurs twice
        return counts


def weights_of(shares: Float[np.ndarray, "S n"]) -> Float[np.ndarray, "n C"]:
    """Return the weights of the grid points around values from their `Grid.shares`."""
    product = np.ones((1, 1), dtype=np.float32)
    for share in shares:
        both = np.stack([1 - share, share], axis=-1)
        product = (product[:, :, None] * both[:, None]).reshape(len(share), 2 * product.shape[1])
    return product


def _sample(signal: Columns) -> Float[np.ndarray, " n"]:
    """Return evenly spaced values, model by model."""
    records, models = signal.shape
    step = max(1, records * models // SAMPLE)
    return np.concatenate([signal.at(model, slice(-model * records % step, None, step)) for model in range(models)])


def grid_points(sample: np.ndarray, bins: int) -> np.ndarray:
    """Return the points of a signal's grid, ascending, from some of its values."""
    ordered = np.sort(sample)
    low, high = np.quantile(ordered, [TAIL, 1 - TAIL])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    fine = np.linspace(low, high, 2000)
    scale = (1 - BY_VALUE) * np.searchsorted(ordered, fine) / len(ordered) + BY_VALUE * (fine - low) / (high - low)
    points: np.ndarray = np.interp(np.linspace(0, 1, bins), (scale - scale[0]) / (scale[-1] - scale[0]), fine)
    return points


def smooth(histograms: np.ndarray, axes: Iterable[int]) -> np.ndarray:
    """Return histograms averaged with their neighbours along axes, with weights ¼, ½, ¼; the ends are their own neighbours."""
    for axis in axes:
        moved = np.moveaxis(histograms, axis, 0)
        around = np.concatenate([moved[:1], moved, moved[-1:]])
        histograms = np.moveaxis(0.25 * around[:-2] + 0.5 * around[1:-1] + 0.25 * around[2:], 0, axis)
    return histograms


def chunked(keys: Int[np.ndarray, " n"], least: int, most: int) -> tuple[bool, Iterator[Int[np.ndarray, " m"]]]:
    """Return whether every chunk holds a single key, and the chunks, which are positions of at most `most` keys.

    Chunks hold a single key if keys occur `least` times or more on average.
    """
    order, ends = _ordered(keys)
    if len(keys) < least * len(ends):
        return False, (order[start : start + most].astype(np.intp) for start in range(0, len(order), most))
    bounds = zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    return True, (
        order[first : min(first + most, end)].astype(np.intp)
        for start, end in bounds
        for first in range(start, end, most)
    )


def _ordered(keys: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " k"]]:
    """Return the positions of keys (0, 1, …) in the keys' order, stable, and the end of every key that occurs.

    The positions are in the smallest type that holds them, and are sorted part by part.
    """
    parts = range(0, len(keys), SAMPLE)
    counts = [np.bincount(keys[start : start + SAMPLE], minlength=int(keys.max(initial=0)) + 1) for start in parts]
    total = np.sum(counts, axis=0)
    free = np.cumsum(total) - total  # the place of every key's next position
    order = np.empty(len(keys), dtype=np.min_scalar_type(len(keys)))
    for start, count in zip(parts, counts, strict=True):
        here = keys[start : start + SAMPLE]
        positions = np.argsort(here, kind="stable")
        shift = free - (np.cumsum(count) - count)
        order[shift[here[positions]] + np.arange(len(here))] = positions + start
        free += count
    return order, np.cumsum(total)[total > 0]
