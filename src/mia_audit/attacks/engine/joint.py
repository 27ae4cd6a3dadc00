"""The leave-one-out likelihood ratio of several signals: Gaussian vectors with in and out covariances pooled over records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import Pairs, left_out
from mia_audit.attacks.engine.hierarchical import DesignShifts, Ordered, Shifts
from mia_audit.attacks.engine.likelihood import PRIOR, RatioBlock, Side, Span, blocks
from mia_audit.attacks.engine.type_ratio import MOST_SIGNALS, blended_ratio, types_ratio
from mia_audit.signals.name import Columns, columns_of

if TYPE_CHECKING:
    from mia_audit.attacks.design import Leaving
    from mia_audit.attacks.engine.hierarchical import Kept
    from mia_audit.signals.name import Cells, Member


LEAST = 1e-9
"""Directions of the signals' correlation matrix with a smaller eigenvalue are treated as rounding errors."""


def joint_ratio(signals: Sequence[Cells | Columns], member: Member, pairs: Pairs | None = None) -> Cells:
    """Score records by log p(x | in) − log p(x | out) of the vector of signals, each [N records, K models].

    NaN where a side has no other model. With one signal this is the pooled likelihood ratio. With `pairs` the scores
    are [N, P], one column per pair.
    """
    leaving = pairs or left_out(member)
    covariances = _covariances(signals, member, leaving)
    whiten = [_whitening(covariance) for covariance in covariances]
    scores = np.empty((len(member), covariances.shape[-1]), order="F")
    for together in zip(*(blocks(signal, member, leaving) for signal in signals), strict=True):
        first = together[0]
        score = np.zeros(first.values.shape)
        for sign, (matrix, log_determinant), sides in zip((-0.5, 0.5), whiten, _sides(together), strict=True):
            deviations = [_informative(block.span, side.deviation) for block, side in zip(together, sides, strict=True)]
            for row in matrix:
                projected = sum(weight * deviation for weight, deviation in zip(row, deviations, strict=True))
                score += sign * np.square(projected)
            score += sign * log_determinant
        score[(first.inside.count < 1) | (first.outside.count < 1)] = np.nan
        scores[first.rows] = score
    return scores


def hierarchical_joint_ratio(
    signals: Sequence[Cells | Columns], member: Member, pairs: Pairs | None = None, kept: Kept = None
) -> Cells:
    """Score records as `joint_ratio` does, but around means whose shift is shrunk towards that of similar records, signal by signal.

    The vectors are Student-t with the pooled covariances and the degrees of freedom of the prior. Every record has a
    score. With `kept` only these columns are returned.
    """
    leaving = pairs or left_out(member)
    columns = [columns_of(signal) for signal in signals]
    covariances = _covariances(columns, member, leaving)
    whiten = [_whitening(covariance) for covariance in covariances]
    scores = np.empty((len(member), covariances.shape[-1] if kept is None else len(kept)), order="F")
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts = [_learned_shifts(one, member, leaving) for one in columns]
        for together in zip(*(one.deviations() for one in shifts), strict=True):
            first, *_ = together[0]
            score = np.zeros(together[0][1].shape, order="F")
            for side, (sign, (matrix, log_determinant)) in enumerate(zip((1.0, -1.0), whiten, strict=True)):
                deviations = [_informative(block.span, sides[side]) for block, *sides in together]
                distance = np.zeros(score.shape, order="F")
                for row in matrix:
                    distance += np.square(sum(weight * one for weight, one in zip(row, deviations, strict=True)))
                score -= sign / 2 * ((PRIOR + len(signals)) * np.log(1 + distance / PRIOR) + log_determinant)
            scores[first.rows] = score if kept is None else score[:, kept]
    return scores


def _learned_shifts(signal: Columns, member: Member, leaving: Leaving) -> Shifts | DesignShifts:
    """Return the shrunk shifts of a signal, for its records in their original order."""
    ordered = Ordered(signal)
    shifts = Shifts(ordered, member) if leaving is None else DesignShifts(ordered, member, leaving)
    shifts.restore(ordered, member)
    return shifts


def _informative(span: Span, deviations: Cells) -> Cells:
    """Return deviations with 0 for records on which all models agree: their deviations are rounding errors, or come from other records."""
    agreed = span.agreed
    return np.where(agreed[:, None], 0.0, deviations) if agreed.any() else deviations


def _sides(together: Sequence[RatioBlock]) -> Iterator[list[Side]]:
    """Yield the in sides of all signals, then the out sides."""
    yield [block.inside for block in together]
    yield [block.outside for block in together]


def _covariances(signals: Sequence[Cells | Columns], member: Member, leaving: Leaving) -> np.ndarray:
    """Return each target's covariances in and out, pooled over records and estimated without the target, [2, S, S, columns].

    Where no record has two other models on a side, this is the covariance over all models. Variances are at least the
    mean of `Span.floor` over records.
    """
    size, models = len(signals), member.shape[1]
    columns = len(leaving) if isinstance(leaving, Pairs) else models
    products, freedom = np.zeros((2, size, size, columns)), np.zeros((2, columns))
    whole, floor = np.zeros((size, size)), np.zeros(size)
    for together in zip(*(blocks(signal, member, leaving) for signal in signals), strict=True):
        values = np.stack([block.every.ravel() for block in together])
        whole += values @ values.T
        floor += [block.span.floor.sum() for block in together]
        for index, sides in enumerate(_sides(together)):
            freedom[index] += np.maximum(sides[0].count - 1, 0).sum(axis=0)
            for a in range(size):
                for b in range(a + 1):
                    products[index, a, b] += sides[a].products(sides[b]).sum(axis=0)
                    products[index, b, a] = products[index, a, b]
    every = whole[:, :, None] / max(len(member) * (models - 1), 1)
    known = freedom[:, None, None] > 0
    covariances: np.ndarray = np.where(known, products / np.maximum(freedom, 1)[:, None, None], every)
    diagonal = np.arange(size)
    covariances[:, diagonal, diagonal] = np.maximum(covariances[:, diagonal, diagonal], (floor / len(member))[:, None])
    return covariances


def _whitening(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every target, the matrix [S, S, K] that whitens a covariance [S, S, K], and its log determinant, [K]."""
    deviation = np.sqrt(np.maximum(np.einsum("aak->ka", covariance), np.finfo(np.float64).tiny))
    correlation = np.moveaxis(covariance, -1, 0) / (deviation[:, :, None] * deviation[:, None, :])
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, LEAST)
    matrix = np.swapaxes(vectors, 1, 2) / np.sqrt(values)[:, :, None] / deviation[:, None, :]
    return np.moveaxis(matrix, 0, -1), np.log(values).sum(axis=1) + 2 * np.log(deviation).sum(axis=1)


JOINT_RATIOS: dict[str, Callable[..., Cells]] = {
    "blend": partial(blended_ratio, other=hierarchical_joint_ratio),
    "hierarchical": hierarchical_joint_ratio,
    "types": types_ratio,
    "pooled": joint_ratio,
}
"""The joint ratios by the name of their likelihood; the best first."""

JOINT_PAIRWISE = ("hierarchical", "pooled")
"""The joint ratios that score pairs of models."""

AT_MOST = {"blend": MOST_SIGNALS, "types": MOST_SIGNALS}
"""The largest number of signals that a likelihood can read together; likelihoods that are not listed have no limit."""
