"""Leave-one-out likelihood ratios in closed form: every model is the target once, with all others as its shadow models.

Let n values on one side (in or out) of a record have mean m and sum of squared deviations SS. Without a value x of that
side the mean is m − (x − m)/(n − 1), the sum of squares is SS − (x − m)² n/(n − 1), and x is at a distance of (x − m)
n/(n − 1) from that mean. So one pass over the cells scores every target, with no loop over targets. Records are centred
first, and processed in blocks that stay in the processor's cache. Some membership designs (`attacks.design`) require
that a further model is left out of the other side, in the same way. Intervals over targets need scores without a second
model, on either side (`PairSide`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from mia_audit.attacks.design import Pairs, left_out, opposite_values
from mia_audit.signals.name import BLOCK_CELLS, BLOCK_RECORDS

if TYPE_CHECKING:
    from mia_audit.attacks.design import Leaving
    from mia_audit.signals.name import Cells, Member

PAIR_CELLS = 1 << 14
"""Cells processed at a time when columns are pairs of models, which need more arrays."""

PRIOR = 20.0
"""Degrees of freedom ν of the prior of `shrunk`."""

RESOLUTION = float(np.finfo(np.float64).eps)


class Side:
    """Statistics of a record over the other models on one side (in or out), for every target: arrays [B, K]."""

    def __init__(self, values: Cells, here: Cells, further: tuple[Cells, Cells] | None = None) -> None:
        """Leave each target out of its own side, which `here` marks with 1; `values` are centred.

        `further` has the values of the models that are left out of the side opposite to the target's, and a mask with 1
        where there is such a model.
        """
        self.models = values.shape[1]
        self._total = here.sum(axis=1, keepdims=True)
        total = (values * here).sum(axis=1, keepdims=True)
        mean = total / np.maximum(self._total, 1)
        self.deviation: Cells = values - mean
        """The target's value minus the mean of the other models."""
        self._every = self.deviation * here
        """The deviations of the side's models from their mean; 0 for models of the other side."""
        if further is None:
            self._gone, self._left = here, self._every
        else:
            opposite, exists = further[0], further[1] * (1 - here)
            self._gone = here + exists
            self._left = self._every + exists * (opposite - mean)
        self.count: Cells = self._total - self._gone
        step = self._left / np.maximum(self._total - 1, 1)
        self.deviation += step
        self._apart = self.deviation if further is None else self._left + step
        """The distance of the left-out value, if any, from the mean of the remaining ones."""

    @property
    def squares(self) -> Cells:
        """The other models' sum of squared deviations from their mean."""
        return np.asarray(np.maximum(self.products(self), 0))

    def products(self, other: Side) -> Cells:
        """Return the sum, over the other models, of products of two signals' deviations from their means."""
        total = (self._every * other._every).sum(axis=1, keepdims=True)
        return np.asarray(total - self._left * other._apart)

    def by_count(self, table: np.ndarray) -> Cells:
        """Look up a function of the number of models, tabulated from 0. A record has two such numbers: with a model left out, and without."""
        number = self._total.astype(np.intp)
        every, without = table[number], table[np.maximum(number - 1, 0)]
        return np.asarray(every + self._gone * (without - every))


class PairSide(Side):
    """Statistics of a record over one side's models except both models of a pair, for every pair: arrays [B, P]."""

    def __init__(self, values: Cells, here: Cells, pairs: Pairs) -> None:
        """Take both models of every pair out of the side whose models `here` marks with 1; `values` are centred."""
        self.models = values.shape[1]
        self._total = here.sum(axis=1, keepdims=True)
        off = values - np.einsum("ij,ij->i", values, here)[:, None] / np.maximum(self._total, 1)
        self._every = off * here
        self._mine, self._second = (np.take(self._every, chosen, axis=1) for chosen in (pairs.target, pairs.left))
        self.count = self._total - np.take(here, pairs.target, axis=1)
        self.count -= np.take(here, pairs.left, axis=1)
        self._left = self._mine + self._second
        self._apart = self._left / np.maximum(self.count, 1)
        self.deviation = np.take(off, pairs.target, axis=1)
        self.deviation += self._apart

    def products(self, other: Side) -> Cells:
        """Return the sum, over the other models, of products of two signals' deviations from their means."""
        assert isinstance(other, PairSide)
        total = np.einsum("ij,ij->i", self._every, other._every)[:, None]
        products: Cells = total - self._mine * other._mine
        products -= self._second * other._second
        products -= self._left * other._apart
        return products

    def by_count(self, table: np.ndarray) -> Cells:
        """Look up a function of the number of models, tabulated from 0."""
        return np.asarray(table.take(self.count.astype(np.intp)))


class Span(NamedTuple):
    """The range of each record's values over models: the mean, and the lowest and highest value minus the mean, [B, 1] each."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def from_cells(cls, cells: Cells) -> Span:
        """Return the span of every record."""
        mean = cells.mean(axis=1, keepdims=True)
        return cls(mean, cells.min(axis=1, keepdims=True) - mean, cells.max(axis=1, keepdims=True) - mean)

    def rows(self, rows: slice) -> Span:
        """Return the span of some of the records."""
        return Span(self.mean[rows], self.low[rows], self.high[rows])

    @property
    def agreed(self) -> np.ndarray:
        """A mask of the records that have the same value in all models, [B], and so carry no information on membership."""
        return np.asarray((self.low == self.high)[:, 0])

    @property
    def floor(self) -> np.ndarray:
        """The variance, [B, 1], below which rounding errors dominate: those of the values, or those of removing one of them."""
        farthest = np.maximum(self.high, -self.low)
        rounding = np.maximum((RESOLUTION * (np.abs(self.mean) + farthest)) ** 2, 16 * RESOLUTION * farthest**2)
        return np.asarray(np.maximum(rounding, np.finfo(np.float64).tiny))


class SlicedMatrix(Protocol):
    """A matrix [N, K], or an object whose slices of records are such matrices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """N and K."""

    def __len__(self) -> int:
        """Return the number of records."""

    def __getitem__(self, rows: slice, /) -> Cells:
        """Return some of the records, [B, K]."""


class RatioBlock:
    """A block of records, with every target left out of its own side: arrays [B, K], or [B, 1] where all models have the same value."""

    def __init__(self, rows: slice, signal: SlicedMatrix, member: Member, leaving: Leaving = None) -> None:
        """Centre the records: large offsets cancel catastrophically otherwise."""
        raw = np.asarray(signal[rows], dtype=np.float64)
        here = member[rows].astype(np.float64)
        self.rows = rows
        self.span = Span.from_cells(raw)
        self.every: Cells = raw - self.span.mean
        """The values of all models, centred, [B, models]."""
        self.values = self.every
        """The targets' values."""
        self.inside: Side
        self.outside: Side
        if isinstance(leaving, Pairs):
            self.values = np.take(self.every, leaving.target, axis=1)
            self.inside, self.outside = (PairSide(self.every, side, leaving) for side in (here, 1 - here))
        else:
            further = None if leaving is None else opposite_values(self.every, leaving[rows])
            self.inside, self.outside = (Side(self.every, side, further) for side in (here, 1 - here))


class Scale(NamedTuple):
    """The scale of a side's predictive density, which is Gaussian, or Student-t with the degrees of freedom of `freedoms`."""

    variance: np.ndarray
    student: bool


class Variance(NamedTuple):
    """A method to estimate the variance of a side, and the number of models that it needs there."""

    estimate: Callable[[Side, np.ndarray], Scale]
    """Computes the variance from a side, [B, K], and its pooled variance, [1, K]."""
    least: int


def pooled(side: Side, pool: np.ndarray) -> Scale:
    """One variance per target and side: ΣSS/Σ(n − 1) over records (Carlini et al. 2022, fixed variance)."""
    return Scale(pool, student=False)


def per_record(side: Side, pool: np.ndarray) -> Scale:
    """The record's own variance, SS/n (Carlini et al. 2022, as in their code)."""
    return Scale(side.squares / side.count, student=False)


def shrunk(side: Side, pool: np.ndarray) -> Scale:
    """The Student-t of a normal–inverse-gamma prior with ν degrees of freedom, centred on the pooled variance (BaVarIA-t, Brännvall 2026)."""
    variance = (PRIOR * pool + side.squares) / side.by_count(freedoms(side.models))
    return Scale(variance * (1 + 1 / side.count), student=True)


LIKELIHOODS = {
    "pooled": Variance(pooled, least=1),
    "per-record": Variance(per_record, least=2),
    "shrunk": Variance(shrunk, least=1),
}
"""The methods by the name that configs use."""


def likelihood_ratio(
    signal: SlicedMatrix, member: Member, likelihood: str = "pooled", pairs: Pairs | None = None
) -> Cells:
    """Score records by log p(x | in) − log p(x | out), from the other models' values of the same record.

    `signal` and `member` are [N records, K models]; so are the scores, or with `pairs` [N, P], one column per pair. NaN
    where a side has too few other models.
    """
    estimate, least = LIKELIHOODS[likelihood]
    leaving = pairs or left_out(member)
    columns = signal.shape[1] if pairs is None else len(pairs)
    pool_in, pool_out = pooled_variances(blocks(signal, member, leaving), columns)
    scores = np.empty((len(signal), columns), order="F")
    with np.errstate(divide="ignore", invalid="ignore"):
        for block in blocks(signal, member, leaving):
            floor = block.span.floor
            score = log_density(block.inside, estimate(block.inside, pool_in), floor)
            score -= log_density(block.outside, estimate(block.outside, pool_out), floor)
            score[block.span.agreed] = 0
            score[(block.inside.count < least) | (block.outside.count < least)] = np.nan
            scores[block.rows] = score
    return scores


def offline_ratio(
    signal: SlicedMatrix,
    member: Member,
    likelihood: str,
    members: Literal["low", "high", "either"],
    pairs: Pairs | None = None,
) -> Cells:
    """Score records by how unlikely the target's value is among the other models that did not train on them.

    `members` says on which side the values of members lie. With `low` or `high` the score is −log of the tail
    probability on that side. It ranks like the log cdf of Carlini et al. 2022, and keeps its resolution in the tail.
    With `either` the score is −log p(x | out), as in their code. Shapes and NaN are as in `likelihood_ratio`.
    """
    estimate, least = LIKELIHOODS[likelihood]
    leaving = pairs or left_out(member)
    columns = signal.shape[1] if pairs is None else len(pairs)
    _, pool = pooled_variances(blocks(signal, member, leaving), columns)
    scores = np.empty((len(signal), columns), order="F")
    with np.errstate(divide="ignore", invalid="ignore"):
        for block in blocks(signal, member, leaving):
            side, floor = block.outside, block.span.floor
            scale = estimate(side, pool)
            if members == "either":
                score = -log_density(side, scale, floor)
            else:
                sign = 1.0 if members == "high" else -1.0
                score = -_log_tail(sign * side.deviation / np.sqrt(np.maximum(scale.variance, floor)), side, scale)
            score[side.count < least] = np.nan
            scores[block.rows] = score
    return scores


def _log_tail(distance: Cells, side: Side, scale: Scale) -> Cells:
    """Return the log probability of a distance larger than this one, in units of the scale."""
    from scipy.special import log_ndtr, stdtr

    if not scale.student:
        return np.asarray(log_ndtr(-distance))
    freedom = side.by_count(freedoms(side.models))
    return np.asarray(np.log(np.maximum(stdtr(freedom, -distance), np.finfo(np.float64).tiny)))


def pooled_variances(over: Iterable[RatioBlock], columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pooled variances in and out, [1, columns]: for every target, ΣSS/Σ(n − 1) over records, without the target.

    Where no record has two other models on a side, this is the variance over all models, which does not depend on membership.
    """
    squares, freedom = np.zeros((2, columns)), np.zeros((2, columns))
    whole = np.zeros(2)
    for block in over:
        whole += np.einsum("ij,ij->", block.every, block.every), len(block.every) * (block.every.shape[1] - 1)
        for index, side in enumerate((block.inside, block.outside)):
            squares[index] += side.squares.sum(axis=0)
            freedom[index] += np.maximum(side.count - 1, 0).sum(axis=0)
    inside, outside = np.where(freedom > 0, squares / np.maximum(freedom, 1), whole[0] / max(whole[1], 1))
    return inside[None], outside[None]


def blocks(signal: SlicedMatrix, member: Member, leaving: Leaving = None) -> Iterator[RatioBlock]:
    """Yield the records block by block. `leaving` has the further models to leave out (from `left_out`), or pairs of models."""
    step = max(BLOCK_RECORDS, BLOCK_CELLS // signal.shape[1])
    if isinstance(leaving, Pairs):
        step = max(64, PAIR_CELLS // len(leaving))
    for first in range(0, len(signal), step):
        yield RatioBlock(slice(first, min(first + step, len(signal))), signal, member, leaving)


def log_density(side: Side, scale: Scale, floor: np.ndarray) -> Cells:
    """Return the log density of the targets' values under this side's model, [B, K], with a variance of at least `floor`."""
    variance = np.maximum(scale.variance, floor)
    if not scale.student:
        return np.asarray(-0.5 * (side.deviation**2 / variance + np.log(variance) + math.log(2 * math.pi)))
    constants, exponents = student_tables(side.models)
    spread = variance * side.by_count(freedoms(side.models))
    density: Cells = np.log(1 + side.deviation**2 / spread) * side.by_count(exponents)
    density += side.by_count(constants)
    density -= 0.5 * np.log(spread)
    return density


@cache
def freedoms(models: int) -> np.ndarray:
    """Return the degrees of freedom of `shrunk` for 0 … models values: ν + n − 1."""
    return PRIOR + np.maximum(np.arange(models + 1) - 1, 0)


@cache
def student_tables(models: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the constant of the Student-t log density and the factor of its logarithm, for 0 … models values."""
    values = freedoms(models)
    constants = [math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - math.log(math.pi) / 2 for nu in values]
    return np.array(constants), -0.5 * (values + 1)


def authors_ratio(signal: Cells, member: Member, pairs: Pairs | None = None) -> Cells:
    """Score by a Gaussian log ratio around a record's in and out means, with a single variance per target.

    The variance is that of the in and out means of all records.

    `signal` and `member` are [N records, K models]; so are the scores, or with `pairs` [N, P], one column per pair. NaN
    where no other model is on one side.
    """
    columns = signal.shape[1] if pairs is None else len(pairs)
    scores = np.empty((len(signal), columns), order="F")
    count, total, square = np.zeros((3, columns))
    centre = float(signal.mean())
    for block in blocks(signal, member, pairs or left_out(member)):
        value = block.values + (block.span.mean - centre)
        for side in (block.inside, block.outside):
            known = side.count > 0
            means = np.where(known, value - side.deviation, 0)
            count += known.sum(axis=0)
            total += means.sum(axis=0)
            square += np.square(means).sum(axis=0)
        score = (block.outside.deviation**2 - block.inside.deviation**2) / 2
        score[block.span.agreed] = 0
        score[(block.inside.count < 1) | (block.outside.count < 1)] = np.nan
        scores[block.rows] = score
    count = np.maximum(count, 1)
    scores /= np.maximum(square / count - (total / count) ** 2, np.finfo(np.float64).tiny)
    return scores
