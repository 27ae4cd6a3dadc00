"""The likelihood ratio for few shadow models: an empirical-Bayes shift between a record's in and out means.

With few models the difference d between a record's two means is mostly noise. Records with like means r shift alike, so
d is shrunk towards the shift D(r) that is expected there, by as much as its sampling variance outweighs the spread T(r)
of shifts between records. Both functions are learned from all records, for every target without that target's values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.likelihood import PRIOR, Block, Side, blocks, pooled_variances, student

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Cells = Float[np.ndarray, "N K"]
    Member = Bool[np.ndarray, "N K"]

BINS = 20
"""Quantile bins of r in which D and T are estimated."""

RECORDS_PER_BIN = 50
"""Smaller pools have fewer bins."""

STEPS = 512
"""Resolution with which D(r) and T(r) are tabulated."""


def hierarchical_ratio(signal: Cells, member: Member) -> Cells:
    """Score records by log p(x | in) − log p(x | out) with a shrunk shift; a record without models on one side has a score too.

    `signal` and `member` are [N records, K models]; so are the scores.
    """
    found = Shifts(signal, member)
    scores = np.empty(signal.shape, order="F")
    with np.errstate(divide="ignore", invalid="ignore"):
        for block, from_in, from_out in found.deviations():
            floor = block.floor
            score = _predictive(block.inside, from_in, found.pools[0], floor)
            score -= _predictive(block.outside, from_out, found.pools[1], floor)
            score[block.agreed] = 0
            scores[block.rows] = score
    return found.unsorted(scores)


class Shifts:
    """The shrunk shift of every record and target; records are sorted by their mean, so that bins of it are slices."""

    def __init__(self, signal: Cells, member: Member) -> None:
        """Learn D and T from all records; each model's median over records is taken off its column."""
        self._order = np.argsort(signal.mean(axis=1), kind="stable")
        self._signal, self._member = _reordered(signal, self._order), _reordered(member, self._order)
        for column in self._signal.T:
            column -= _median(column)
        self.pools, self._prior = _prior(self._signal, self._member)

    def deviations(self) -> Iterator[tuple[Block, Cells, Cells]]:
        """Yield, block by sorted block, the targets' deviations from the in and the out mean that the shrunk shift implies."""
        others = self._signal.shape[1] - 1
        known_in, known_out = (np.maximum(pool, np.finfo(np.float64).tiny) for pool in self.pools)
        for block in blocks(self._signal, self._member):
            inside, outside = block.inside, block.outside
            means = block.mean - block.values / others  # over the other models
            expected, variation = self._prior(means)
            noise = known_in / inside.count + known_out / outside.count  # infinite without models on a side
            found = outside.deviation - inside.deviation
            found -= expected
            found *= variation / np.maximum(variation + noise, np.finfo(np.float64).tiny)
            found += expected
            # The other models' values sum to −x: the centred values of a record sum to zero.
            from_out = block.values + (block.values + inside.count * found) / others
            yield block, from_out - found, from_out

    def unsorted(self, values: Cells) -> Cells:
        """Return the records to the order in which they came."""
        return _reordered(values, np.argsort(self._order))


def _reordered(matrix: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the records of a matrix [N, K] in another order, a model at a time: its column stays in the cache."""
    made = np.empty((matrix.shape[1], len(order)), dtype=matrix.dtype)
    for column, values in zip(made, matrix.T, strict=True):
        np.take(values, order, out=column, mode="clip")  # the other modes make a copy first
    return made.T


def _median(values: np.ndarray) -> float:
    """Return the median; sorting takes half the time of finding it."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2)


def _predictive(side: Side, deviation: Cells, pool: np.ndarray, floor: np.ndarray) -> Cells:
    """Return the log density at a deviation from a mean that all other models estimate, with the side's shrunk variance."""
    spread = PRIOR * pool + side.squares
    spread *= 1 + 1 / (spread.shape[1] - 1)
    return student(side, deviation, np.maximum(spread, PRIOR * floor))


class _Curves:
    """Functions of r, one per target: linear between points, and tabulated on an even grid, because cells are many."""

    def __init__(self, means: np.ndarray, points: np.ndarray, known: np.ndarray, *functions: np.ndarray) -> None:
        """Join each function's values at `points`, [bins, K], where they are `known`; `means` tell where cells will be."""
        low, high = np.quantile(means, [0.005, 0.995])
        self._low, self._width = low, (high - low) / STEPS or 1.0
        self._models = known.shape[1]
        grid = low + (np.arange(STEPS) + 0.5) * self._width
        self._tables = np.zeros((len(functions), self._models, STEPS))
        for target in np.flatnonzero(known.any(axis=0)):
            here = known[:, target]
            for table, values in zip(self._tables, functions, strict=True):
                table[target] = np.interp(grid, points[here], values[here, target])

    def __call__(self, means: Cells) -> list[Cells]:
        """Return every function at the means of every target, [B, K]."""
        step = np.clip((means - self._low) / self._width, 0, STEPS - 1).astype(np.intp)
        step += STEPS * np.arange(self._models)
        return [table.take(step.T, mode="clip").T for table in self._tables]  # transposed: models are contiguous


def _prior(signal: Cells, member: Member) -> tuple[tuple[np.ndarray, np.ndarray], _Curves]:
    """Return the pooled variances, and D and T together, by the method of moments, from records sorted by their mean."""
    means = signal.mean(axis=1)
    bins = np.array_split(np.arange(len(means)), int(np.clip(len(means) // RECORDS_PER_BIN, 1, BINS)))
    models = signal.shape[1]
    count, shift, square, over_in, over_out = np.zeros((5, len(bins), models))

    def tallied() -> Iterator[Block]:
        for index, rows in enumerate(bins):
            for block in blocks(signal[rows[0] : rows[-1] + 1], member[rows[0] : rows[-1] + 1]):
                inside, outside = block.inside, block.outside
                known = (inside.count > 0) & (outside.count > 0)
                found = (outside.deviation - inside.deviation) * known
                count[index] += known.sum(axis=0)
                shift[index] += found.sum(axis=0)
                square[index] += np.square(found).sum(axis=0)
                over_in[index] += (known / np.maximum(inside.count, 1)).sum(axis=0)
                over_out[index] += (known / np.maximum(outside.count, 1)).sum(axis=0)
                yield block

    pools = pooled_variances(tallied(), models)
    known = count > 0
    for total in (shift, square, over_in, over_out):
        total /= np.maximum(count, 1)
    spread = np.maximum(square - shift**2 - pools[0] * over_in - pools[1] * over_out, 0)
    centres = np.array([means[rows].mean() for rows in bins])
    return pools, _Curves(means, centres, known, shift, spread)
