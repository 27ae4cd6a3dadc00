"""The likelihood of unobserved types of records: histograms of any shape, shared by records that behave alike.

Every record is of an unobserved type g, drawn with probability π_g; p_g(x | in) and p_g(x | out) are histograms of the
signal, or of two signals jointly. EM learns them from shadow models (nonparametric empirical Bayes). A record's weights
are γ_g ∝ π_g Π_s p_g(x_s | m_s)^τ over its values in the shadow models, with τ < 1 because the values are not quite
independent. A target's score is the posterior predictive ratio, log Σ γ_g p_g(x | in) − log Σ γ_g p_g(x | out).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import NONE
from mia_audit.attacks.engine.histograms import Grid, chunked, smooth, weights_of

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.attacks.engine.histograms import Sides

    Counts = Float[np.ndarray, "N B"]

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
        posterior: Float[np.ndarray, "N G"] = np.exp(weights, out=weights)
        return posterior


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
    normalised: np.ndarray = histograms / np.maximum(histograms.sum(axis=axes, keepdims=True), 1e-9)
    return normalised


def score(
    types: Types,
    grid: Grid,
    side: Sides,
    counts: Counts,
    targets: Int[np.ndarray, " T"],
    left: Int[np.ndarray, "N T"] | None = None,
) -> Float[np.ndarray, "N T"]:
    """Score records by the posterior predictive log ratio for some targets, [N, T].

    `side` is true where a record was in, [K, N]. `counts` include the targets and their shadow models; each target's
    own value is then removed from γ, and so is that of the further model in `left` (`design.NONE`: no model).
    """
    posterior = types.posterior(counts)
    records = len(posterior)
    key = np.empty((len(targets), records), dtype=np.min_scalar_type(2 * grid.size))
    shares = np.empty((len(grid.shape), len(targets), records), dtype=np.float32)
    for place, target in enumerate(targets.tolist()):
        np.add(grid.place[target], side[target] * key.dtype.type(grid.size), out=key[place])
        shares[:, place] = grid.shares(target)
    key = key.reshape(-1)
    scores = np.empty(len(key), dtype=np.float32)
    tempered = types.logs * np.float32(-TEMPER)
    alike, chunks = chunked(key, ALIKE // posterior.shape[1], TOGETHER)
    for cells in chunks:
        column, record = np.divmod(cells, records)
        model = targets[column]
        weights = weights_of(shares[:, column, record])
        chosen = cells[:1] if alike else cells
        out = (key[chosen] - side[model, record][: len(chosen)] * key.dtype.type(grid.size))[:, None] + grid.offsets
        gamma = _interpolated(weights, tempered[key[chosen][:, None] + grid.offsets])
        if left is not None:
            _take_out(gamma, tempered, grid, side, record, left[record, column])
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
    averages: Float[np.ndarray, " n"] = np.einsum("nc,nc->n", weights, at_points)
    return averages


def _take_out(
    gamma: Float[np.ndarray, "n G"],
    tempered: Float[np.ndarray, "B G"],
    grid: Grid,
    side: Sides,
    record: Int[np.ndarray, " n"],
    left: Int[np.ndarray, " n"],
) -> None:
    """Remove the values of further models, if any, from log γ."""
    there = left != NONE
    model, record = left[there], record[there]
    place = grid.place[model, record] + side[model, record] * np.int32(grid.size)
    for offset, weight in zip(grid.offsets, grid.weights(model, record).T, strict=True):
        gamma[there] += weight[:, None] * tempered[place + offset]
