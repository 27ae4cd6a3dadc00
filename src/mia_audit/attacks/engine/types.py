"""The likelihood of unobserved types of records: histograms of any shape, shared by records that behave alike.

What is estimated: every record is of an unobserved type g, drawn with probability π_g; p_g(x | in) and p_g(x | out) are
histograms of the signal, or of two signals jointly. From what: the values of all records in all shadow models, by EM
(nonparametric empirical Bayes). A record's weights are γ_g ∝ π_g Π_s p_g(x_s | m_s)^τ over its values in the shadow
models, with τ < 1 because the values are not quite independent. A target's score is the posterior predictive ratio,
log Σ γ_g p_g(x | in) − log Σ γ_g p_g(x | out).

Why not simply a Gaussian per record: signals of trained networks are skewed, have two modes (learned or not), and tails
that decide the TPR at low FPRs. A histogram needs thousands of values, and a record has a few dozen; shared between the
records of a type it has them. On large pools this wins over `hierarchical`, on small ones it loses, hence `blend`.

Why a grid: EM reads every value many times. Values are therefore replaced by their positions on an even grid once, and
counts of models per record and position take their place; a value between grid points is divided among those around it by
linear interpolation. Neither the grid nor the positions depend on membership, so nothing of it leaks into the scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import NO_MODEL

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.signals.name import Columns, Some

    Sides = Bool[np.ndarray, "K N"]

    Counts = Float[np.ndarray, "N B"]


BINS = {1: (48,), 2: (24, 12)}
"""Grid points of each signal, by the number of signals."""

BY_VALUE = 0.7
"""Grid points are evenly spaced in 0.7 value + 0.3 rank: the grid is finer where values are dense, and still resolves the tails."""

TAIL = 0.0005
"""The share of values beyond either end of the grid; they are counted at the end points."""

SAMPLE = 1 << 18
"""Maximum number of values from which the grid is computed, and of values that are sorted at once."""

PART = 1 << 13
"""Largest number of records counted or scored at a time, so that what is kept of them stays in the processor's cache."""


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

    def counts(
        self, side: Sides, models: Iterable[int], counted: Sides | None = None, rows: Some = slice(None)
    ) -> Float[np.ndarray, "n B"]:
        """Count for some records the models at every grid point: first the models without the record (out), then those with it (in).

        `side` is true where a record was in, [K, N]; cells where `counted`, [K, n], is false are ignored.
        """
        numbers = np.arange(self.place.shape[1])[rows]
        counts = np.zeros((len(numbers), 2 * self.size), dtype=np.float32)
        models = list(models)
        for start in range(0, len(numbers), PART):
            part = slice(start, start + PART)
            records, cells = numbers[part], counts[part].reshape(-1)
            first = np.arange(len(records), dtype=np.int64) * (2 * self.size)
            for model in models:
                here = first + self.place[model, records]
                here += side[model, records] * np.int64(self.size)
                weights = self.weights(model, records)
                if counted is not None:
                    weights *= counted[model, part][:, None]
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
    return np.asarray(np.interp(np.linspace(0, 1, bins), (scale - scale[0]) / (scale[-1] - scale[0]), fine))


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


ITERATIONS = 12
"""Number of EM steps; more make no measurable difference."""

LAST, FEW = 2, 5000
"""Only the last `LAST` steps read all records; earlier steps read about `FEW` evenly spaced ones, in a fifth of the time."""

TEMPER = 0.7
"""τ, the weight of one model's value for a record."""

POOL = 2.0
"""Weight, in counts, of the whole pool's histogram in the histogram of every type."""

PRODUCT = 20.0
"""Weight, in counts, of the product of a type's marginals in its joint histogram."""

EMPTY = 0.01
"""Total pseudo-count added to the pool's histogram, so that no bin has probability 0."""

LEAST = -50.0
"""Smallest log γ, of 0 for the most likely type: it changes no sum over types, and keeps out numbers below 1e-38, with which processors are slow."""

TOGETHER = 512
"""Cells scored at a time, so that they stay in the processor's cache."""

ALIKE = 2500
"""Bins with at least this many cells × types are scored one at a time, by matrix products; smaller bins are scored together."""


@dataclass(frozen=True)
class Types:
    """The parameters learned from shadow models: π, [G]; every type's histograms, [B, G], with out bins before in bins; and their logarithms."""

    share: Float[np.ndarray, " G"]
    histogram: Float[np.ndarray, "B G"]
    logs: Float[np.ndarray, "B G"]

    def posterior(self, counts: Counts) -> Float[np.ndarray, "N G"]:
        """Return γ of every record, scaled to a largest weight of 1, from the record's counts of shadow models per bin."""
        weights = counts @ self.logs
        weights *= np.float32(TEMPER)
        weights += np.log(self.share)
        weights -= weights.max(axis=1, keepdims=True)
        np.maximum(weights, LEAST, out=weights)
        return np.asarray(np.exp(weights, out=weights))


def learn(grid: Grid, counts: Counts, first: Int[np.ndarray, " N"]) -> Types:
    """Learn types by EM from the counts of the shadow models; `first` is every record's initial type."""
    some = slice(None, None, max(1, len(counts) // FEW))
    few, pool = counts[some], _pool(grid, counts)
    weights = np.zeros((len(few), int(first.max()) + 1), dtype=np.float32)
    weights[np.arange(len(few)), first[some]] = 1
    types = _maximised(grid, few, weights, pool)
    for step in range(2, ITERATIONS + 1):
        types = _step(types, grid, few if step <= ITERATIONS - LAST else counts, pool)
    return types


def _step(types: Types, grid: Grid, counts: Counts, pool: np.ndarray) -> Types:
    weights = types.posterior(counts)
    weights /= weights.sum(axis=1, keepdims=True)
    return _maximised(grid, counts, weights, pool)


def _pool(grid: Grid, counts: Counts) -> np.ndarray:
    """Return the histograms of all records, out and in, [1, 2, …]."""
    pool = counts.sum(axis=0, dtype=np.float64).reshape(1, 2, *grid.shape)
    pool = _normalised(smooth(smooth(pool, _axes(grid)), _axes(grid)), _axes(grid))
    return _normalised(pool + EMPTY / grid.size, _axes(grid))


def _maximised(grid: Grid, counts: Counts, weights: Float[np.ndarray, "N G"], pool: np.ndarray) -> Types:
    """Return the types that maximise the likelihood given the records' weights (the M step)."""
    axes = _axes(grid)
    masses = (weights.T @ counts).astype(np.float64).reshape(-1, 2, *grid.shape)
    masses = smooth(masses, axes)
    if len(axes) > 1:  # a joint histogram has many bins: it is shrunk towards the product of its marginals
        rows, columns = (
            _normalised(masses.sum(axis=axis, keepdims=True) + POOL * pool.sum(axis=axis, keepdims=True), axes)
            for axis in reversed(axes)
        )
        masses += PRODUCT * rows * columns
    masses += POOL * pool
    histogram = np.ascontiguousarray(_normalised(masses, axes).reshape(len(masses), -1).T)
    share = weights.mean(axis=0, dtype=np.float64) + 1e-12
    return Types(share.astype(np.float32), histogram.astype(np.float32), np.log(histogram).astype(np.float32))


def _axes(grid: Grid) -> tuple[int, ...]:
    return tuple(range(2, 2 + len(grid.shape)))


def _normalised(histograms: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.asarray(histograms / np.maximum(histograms.sum(axis=axes, keepdims=True), 1e-9))


def score(
    types: Types,
    grid: Grid,
    side: Sides,
    counts: Counts,
    targets: Int[np.ndarray, " T"],
    left: Int[np.ndarray, "N T"] | None = None,
    numbers: Int[np.ndarray, " N"] | None = None,
) -> Float[np.ndarray, "N T"]:
    """Score records by the posterior predictive log ratio for some targets, [N, T], a part of the records at a time.

    `side` is true where a record was in, [K, records]. `counts` include the targets and their shadow models; each
    target's own value is then removed from γ, and so is that of the further model in `left` (`design.NONE`: no model).
    `numbers` are those of the N records, if they are not all.
    """
    numbers = np.arange(len(counts)) if numbers is None else numbers
    scores = np.empty((len(targets), len(counts)), dtype=np.float32).T
    for start in range(0, len(counts), PART):
        part = slice(start, start + PART)
        beside = None if left is None else left[part]
        scores[part] = _scored(
            types, grid, side, counts=counts[part], targets=targets, left=beside, numbers=numbers[part]
        )
    return scores


def _scored(
    types: Types,
    grid: Grid,
    side: Sides,
    counts: Counts,
    targets: Int[np.ndarray, " T"],
    left: Int[np.ndarray, "N T"] | None,
    numbers: Int[np.ndarray, " N"],
) -> Float[np.ndarray, "N T"]:
    posterior = types.posterior(counts)
    records = len(posterior)
    key = np.empty((len(targets), records), dtype=np.min_scalar_type(2 * grid.size))
    shares = np.empty((len(grid.shape), len(targets), records), dtype=np.float32)
    for place, target in enumerate(targets.tolist()):
        np.add(grid.place[target, numbers], side[target, numbers] * key.dtype.type(grid.size), out=key[place])
        shares[:, place] = grid.shares(target, numbers)
    key = key.reshape(-1)
    scores = np.empty(len(key), dtype=np.float32)
    tempered = types.logs * np.float32(-TEMPER)
    alike, chunks = chunked(key, ALIKE // posterior.shape[1], TOGETHER)
    for cells in chunks:
        column, record = np.divmod(cells, records)
        model = targets[column]
        weights = weights_of(shares[:, column, record])
        chosen = cells[:1] if alike else cells
        inside = side[model, numbers[record]][: len(chosen)]
        out = (key[chosen] - inside * key.dtype.type(grid.size))[:, None] + grid.offsets
        gamma = _interpolated(weights, tempered[key[chosen][:, None] + grid.offsets])
        if left is not None:
            _take_out(gamma, tempered, grid, side=side, record=numbers[record], left=left[record, column])
        np.exp(gamma, out=gamma)
        gamma *= posterior[record]
        of_out, of_in = (_averaged(gamma, weights, types.histogram[half]) for half in (out, out + grid.size))
        scores[cells] = np.log(of_in) - np.log(of_out)
    return scores.reshape(len(targets), records).T


def _interpolated(weights: Float[np.ndarray, "n C"], points: Float[np.ndarray, "m C G"]) -> Float[np.ndarray, "n G"]:
    """Interpolate every type at the cells' values from the surrounding grid points: one set of them for all cells, or one per cell."""
    density: Float[np.ndarray, "n G"]
    density = weights @ points[0] if len(points) == 1 else np.einsum("nc,ncg->ng", weights, points)
    return density


def _averaged(
    gamma: Float[np.ndarray, "n G"], weights: Float[np.ndarray, "n C"], points: Float[np.ndarray, "m C G"]
) -> Float[np.ndarray, " n"]:
    """Return the types' histograms at the cells' values, averaged over types with weights γ, up to a factor."""
    at_points = gamma @ points[0].T if len(points) == 1 else np.einsum("ng,ncg->nc", gamma, points)
    return np.asarray(np.einsum("nc,nc->n", weights, at_points))


def _take_out(
    gamma: Float[np.ndarray, "n G"],
    tempered: Float[np.ndarray, "B G"],
    grid: Grid,
    side: Sides,
    record: Int[np.ndarray, " n"],
    left: Int[np.ndarray, " n"],
) -> None:
    """Remove the values of further models, if any, from log γ."""
    there = left != NO_MODEL
    model, record = left[there], record[there]
    place = grid.place[model, record] + side[model, record] * np.int32(grid.size)
    for offset, weight in zip(grid.offsets, grid.weights(model, record).T, strict=True):
        gamma[there] += weight[:, None] * tempered[place + offset]
