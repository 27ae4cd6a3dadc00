"""Leave-one-out likelihood ratios in closed form: every model is the target once, all the others are its shadow models.

With n values of mean m and sum of squared deviations SS on one side (in or out) of a record, leaving out a value x
of that side gives mean m − (x − m)/(n − 1), sum of squares SS − (x − m)² n/(n − 1), and puts x at a distance of
(x − m) n/(n − 1) from the new mean. So one pass over the cells scores every target, with no loop over targets. Records
are centred first, and processed in blocks that stay in the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Cells = Float[np.ndarray, "N K"]
    Member = Bool[np.ndarray, "N K"]

BLOCK_CELLS = 1 << 16
"""Cells processed at a time."""

PRIOR = 20.0
"""Degrees of freedom ν of the prior of `shrunk`."""

RESOLUTION = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Side:
    """What the other models on one side (in or out) say of a record, for every target: arrays [B, K]."""

    count: Cells
    squares: Cells
    """Sum of squared deviations from their mean."""
    distance: Cells
    """Squared distance of the target's value from their mean."""


class Scale(NamedTuple):
    """The width of a side's predictive density: Gaussian, or Student-t with count + `prior` degrees of freedom."""

    variance: np.ndarray
    prior: float | None


class Variance(NamedTuple):
    """A way to estimate the variance of a side, and how many models the side needs for it."""

    estimate: Callable[[Side, np.ndarray], Scale]
    """From a side, [B, K], and its pooled variance, [1, K]."""
    least: int


def pooled(side: Side, pool: np.ndarray) -> Scale:
    """One variance per target and side: ΣSS/Σ(n − 1) over records (Carlini et al. 2022, fixed variance)."""
    return Scale(pool, None)


def per_record(side: Side, pool: np.ndarray) -> Scale:
    """The record's own variance, SS/n (Carlini et al. 2022, as in their code)."""
    return Scale(side.squares / side.count, None)


def shrunk(side: Side, pool: np.ndarray) -> Scale:
    """Normal–inverse-gamma with ν prior degrees of freedom centred on the pooled variance: a Student-t."""
    variance = (PRIOR * pool + side.squares) / (side.count + (PRIOR - 1))
    return Scale(variance * (1 + 1 / side.count), PRIOR - 1)


VARIANCES = {
    "pooled": Variance(pooled, least=1),
    "per-record": Variance(per_record, least=2),
    "shrunk": Variance(shrunk, least=1),
}
"""Variances by the name that configs use."""


def likelihood_ratio(signal: Cells, member: Member, variance: str = "pooled") -> Cells:
    """Score records by log p(x | in) − log p(x | out), from the other models' values of the same record.

    `signal` and `member` are [N records, K models]; so are the scores. NaN where a side has too few other models.
    """
    estimate, least = VARIANCES[variance]
    pool_in, pool_out = pooled_variances(signal, member)
    scores = np.empty(signal.shape, dtype=np.float64, order="F")
    with np.errstate(divide="ignore", invalid="ignore"):
        for rows, inside, outside, floor in sides(signal, member):
            score = _log_density(inside, estimate(inside, pool_in), floor)
            score -= _log_density(outside, estimate(outside, pool_out), floor)
            score[(inside.count < least) | (outside.count < least)] = np.nan
            scores[rows] = score
    return scores


def pooled_variances(signal: Cells, member: Member) -> tuple[np.ndarray, np.ndarray]:
    """Return the pooled variances in and out, [1, K]: for every target, ΣSS/Σ(n − 1) over records, without the target."""
    squares, freedom = np.zeros((2, signal.shape[1])), np.zeros((2, signal.shape[1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        for _, *both, _ in sides(signal, member):
            for index, side in enumerate(both):
                squares[index] += side.squares.sum(0, where=side.count > 0)
                freedom[index] += np.maximum(side.count - 1, 0).sum(0)
    inside, outside = squares / np.maximum(freedom, 1)
    return inside[None], outside[None]


def sides(signal: Cells, member: Member) -> Iterator[tuple[slice, Side, Side, np.ndarray]]:
    """Yield, block by block, its rows, the in and the out side of every cell, and the least variance float64 resolves, [B, 1]."""
    records, models = signal.shape
    step = max(1, BLOCK_CELLS // models)
    for start in range(0, records, step):
        rows = slice(start, start + step)
        raw = np.asarray(signal[rows], dtype=np.float64)
        values = raw - raw.mean(axis=1, keepdims=True)  # large offsets cancel catastrophically otherwise
        inside = member[rows].astype(np.float64)
        floor = _resolved(raw, values)
        yield rows, _side(values, inside), _side(values, 1 - inside), floor


def _resolved(raw: Cells, values: Cells) -> np.ndarray:
    """Return the least variance that rounding leaves meaningful, [B, 1]: of the values themselves, and of removing one of them."""
    offset = RESOLUTION * np.abs(raw).max(axis=1, keepdims=True)
    spread = np.square(values).max(axis=1, keepdims=True)
    least: np.ndarray = np.maximum(np.maximum(offset**2, 16 * RESOLUTION * spread), np.finfo(np.float64).tiny)
    return least


def _side(values: Cells, here: Cells) -> Side:
    """Leave each target out of the side on which `here` is 1."""
    count = here.sum(axis=1, keepdims=True)
    mean = (values * here).sum(axis=1, keepdims=True) / np.maximum(count, 1)
    distance = values - mean
    distance *= distance
    own = distance * here
    squares = own.sum(axis=1, keepdims=True)
    weight = count / np.maximum(count - 1, 1)
    return Side(count - here, np.maximum(squares - weight * own, 0), distance + (weight * weight - 1) * own)


def _log_density(side: Side, scale: Scale, floor: np.ndarray) -> Cells:
    variance = np.maximum(scale.variance, floor)
    if scale.prior is None:
        tail = -0.5 * (side.distance / variance + math.log(2 * math.pi))
    else:
        freedom = side.count + scale.prior
        tail = -0.5 * (freedom + 1) * np.log1p(side.distance / (freedom * variance))
        tail += _student_constants(side.count.shape[1], scale.prior)[side.count.astype(np.intp)]
    density: Cells = tail - 0.5 * np.log(variance)
    return density


def _student_constants(models: int, prior: float) -> np.ndarray:
    """Return the logarithm of the Student-t density's constant at 0 … models values, with that many + prior degrees of freedom."""
    freedoms = np.arange(models + 1) + prior
    return np.array([math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - math.log(nu * math.pi) / 2 for nu in freedoms])
