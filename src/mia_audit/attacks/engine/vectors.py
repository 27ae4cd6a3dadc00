"""The leave-one-out likelihood ratio of vectors: one Gaussian covariance for all records, around every record's in and out means.

A target's covariance and means come from the other models only. All of them follow in closed form from sums over all
models, for every target at once, block by block of records. Arrays are [T targets, B records, m].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mia_audit.attacks.design import NO_MODEL, left_out
from mia_audit.attacks.engine.ratios import hierarchical_of
from mia_audit.attacks.engine.type_ratio import blended_ratio

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.attacks.design import Partners
    from mia_audit.attacks.engine.hierarchical import Kept
    from mia_audit.signals.name import Cells, Columns, Member

    Vectors: TypeAlias = 'Float[np.ndarray, "N K m"] | Stack'

NUMBERS = 1 << 19
"""Numbers of vectors processed at a time."""

HELD = 3 << 19
"""Largest number of numbers of vectors whose blocks are kept in memory from one pass to the next."""

LEAST = 1e-9
"""Directions of the correlation matrix with a smaller eigenvalue are treated as rounding errors."""

RIDGE = 1e-6
"""Weight of the penalty in the regression of shifts on means, relative to the means' variance."""


@dataclass(frozen=True)
class VectorBlock:
    """Some records: the targets' values minus the mean of the other models, and what those models say of both sides.

    `shift` is their in mean minus their out mean, `inside` and `outside` count them, [K, B, 1], and `centre` is the
    mean of them all. `left` lists what the scatter around the sides' means loses without the target, and without a
    further model that the design leaves out.
    """

    rows: slice
    values: Float[np.ndarray, "T B m"]
    shift: Float[np.ndarray, "T B m"]
    centre: Float[np.ndarray, "T B m"]
    inside: Float[np.ndarray, "T B 1"]
    outside: Float[np.ndarray, "T B 1"]
    deviations: Float[np.ndarray, "K B m"]
    left: list[Float[np.ndarray, "T B m"]]

    @property
    def both(self) -> Float[np.ndarray, "T B 1"]:
        """Where both sides have another model."""
        return ((self.inside > 0) & (self.outside > 0)).astype(np.float64)

    @property
    def variance(self) -> Float[np.ndarray, "T B 1"]:
        """The variance of the shift, in units of the covariance."""
        return np.asarray(1 / np.maximum(self.inside, 1) + 1 / np.maximum(self.outside, 1))


class Stack:
    """Vectors of some models, with signals [N, K] as further coordinates: an array [N, K, m] of which a block is read at a time."""

    def __init__(
        self, vectors: Vectors, further: Sequence[Columns] = (), models: Int[np.ndarray, " S"] | None = None
    ) -> None:
        """Take vectors and signals of all models, or only vectors if some are chosen (`models`)."""
        self._vectors, self._further, self._models = vectors, further, models
        records, known, size = vectors.shape
        self.shape: tuple[int, int, int] = (records, known if models is None else len(models), size + len(further))
        self.size = records * self.shape[1] * self.shape[2]

    def __getitem__(self, rows: slice) -> Float[np.ndarray, "B K m"]:
        """Return some of the records, float32 where there are further coordinates."""
        values = self._vectors[rows]
        if self._models is not None:
            values = values[:, self._models]
        if self._further:
            parts = [values, *(one[rows][:, :, None] for one in self._further)]
            values = np.concatenate(parts, axis=2, dtype=np.float32)
        return values


class Blocks:
    """All records, block by block; blocks of few numbers are kept in memory from one pass to the next."""

    def __init__(self, vectors: Vectors, member: Member, kept: Kept = None) -> None:
        """Take the vectors and the membership of all models, and which of them are targets (all if None)."""
        self.targets, self.size = len(member.T if kept is None else kept), vectors.shape[2]
        self._again = partial(_blocks, vectors, member, kept)
        self._held = list(self._again()) if vectors.size <= HELD else None

    def __iter__(self) -> Iterator[VectorBlock]:
        """Yield every block."""
        return self._again() if self._held is None else iter(self._held)


def vector_ratio(vectors: Vectors, member: Member) -> Cells:
    """Score records by log p(x | in) − log p(x | out) around the record's means as they are; NaN where a side has no other model."""
    blocks = Blocks(vectors, member)
    whiten = _whitening(blocks)
    scores = np.empty(member.shape, order="F")
    for block in blocks:
        value, shift = block.values @ whiten, block.shift @ whiten
        # the centre divides the shift in proportion to the counts: the in mean is centre + shift · out / all
        every = block.inside + block.outside
        near = value - shift * (block.outside / np.maximum(every, 1))
        far = value + shift * (block.inside / np.maximum(every, 1))
        score = (np.square(far) - np.square(near)).sum(axis=2) / 2
        scores[block.rows] = np.where(block.both[:, :, 0] > 0, score, np.nan).T
    return scores


def hierarchical_vector_ratio(vectors: Vectors, member: Member, kept: Kept = None) -> Cells:
    """Score records as `vector_ratio` does, but with the shift shrunk towards its expectation at the record's mean.

    That is a linear regression on the mean over all records. The shifts' spread around it is estimated in the directions
    in which it is largest, and the uncertainty of means and shift widens both densities. Every record has a score. With `kept` only these columns
    are returned.
    """
    blocks = Blocks(vectors, member, kept)
    turn, slope, spread = _learned(blocks, _whitening(blocks))
    scores = np.empty((len(member), len(turn)), order="F")
    for block in blocks:
        every = np.maximum(block.inside + block.outside, 1)
        expected = _with_one(block.centre @ turn) @ slope
        weight = block.both * spread / (spread + block.variance)
        shift = expected + weight * (block.shift @ turn - expected)
        left = np.where(block.both > 0, weight * block.variance, spread)
        value = block.values @ turn
        score = np.zeros(value.shape[:2])
        for sign, share in ((1, block.outside / every), (-1, block.inside / every)):
            density = 1 + 1 / every + share**2 * left
            score -= sign / 2 * (np.square(value - sign * share * shift) / density + np.log(density)).sum(axis=2)
        scores[block.rows] = score.T
    return scores


def blended_vector_ratio(norm: Columns, vectors: Sequence[Vectors], member: Member) -> Cells:
    """Score records by a weighted sum of the norm's two log ratios and of the vectors' `hierarchical_vector_ratio`."""

    def of_vectors(models: Int[np.ndarray, " S"], member: Member, kept: Kept = None) -> Cells:
        ratios = (hierarchical_vector_ratio(Stack(one, models=models), member, kept) for one in vectors)
        return np.asarray(np.sum(list(ratios), axis=0))

    return blended_ratio([norm], member, other=hierarchical_of, beside=of_vectors)


def _blocks(vectors: Vectors, member: Member, kept: Kept = None) -> Iterator[VectorBlock]:
    partners, targets = left_out(member), slice(None) if kept is None else kept
    records, models, size = vectors.shape
    step = max(1, NUMBERS // (models * size))
    for start in range(0, records, step):
        rows = slice(start, start + step)
        values = np.ascontiguousarray(vectors[rows].swapaxes(0, 1), dtype=np.float64)
        yield _block(rows, values, member[rows], None if partners is None else partners[rows][:, targets], targets)


def _block(
    rows: slice,
    values: Float[np.ndarray, "K B m"],
    member: Member,
    partners: Partners | None,
    targets: slice | Int[np.ndarray, " T"],
) -> VectorBlock:
    origin = values.mean(axis=0)
    values -= origin
    here = member.T.astype(np.float64)
    counts = {1: here.sum(axis=0), 0: (1 - here).sum(axis=0)}
    total = np.einsum("kb,kbm->bm", here, values)  # of the in side, and minus that of the out side
    means = {1: total / np.maximum(counts[1], 1)[:, None], 0: -total / np.maximum(counts[0], 1)[:, None]}
    deviations = values - np.where(here[:, :, None] > 0, means[1], means[0])
    everyone = values
    here, own, values = here[targets], deviations[targets], values[targets]
    inside, outside = counts[1] - here, counts[0] - (1 - here)
    removed, left = values, [_loss(own, np.where(here > 0, counts[1], counts[0]))]
    if partners is not None:  # a further model, of the other side
        places = np.maximum(partners, 0).T[:, :, None]
        exists = (partners != NO_MODEL).T.astype(np.float64)
        further = np.take_along_axis(deviations, places, axis=0) * exists[:, :, None]
        left.append(_loss(further, np.where(here > 0, counts[0], counts[1])))
        inside, outside = inside - exists * (1 - here), outside - exists * here
        removed = removed + np.take_along_axis(everyone, places, axis=0) * exists[:, :, None]
    weight = here / np.maximum(inside, 1), (1 - here) / np.maximum(outside, 1)
    shift = means[1] - means[0] - own * (weight[0] - weight[1])[:, :, None]
    if partners is not None:
        weight = (1 - here) / np.maximum(inside, 1), here / np.maximum(outside, 1)
        shift -= further * (weight[0] - weight[1])[:, :, None]
    centre = -removed / np.maximum(inside + outside, 1)[:, :, None]
    return VectorBlock(
        rows=rows,
        values=values - centre,
        shift=shift,
        centre=centre + origin,
        inside=inside[:, :, None],
        outside=outside[:, :, None],
        deviations=deviations,
        left=left,
    )


def _loss(deviations: Float[np.ndarray, "T B m"], count: Float[np.ndarray, "T B"]) -> Float[np.ndarray, "T B m"]:
    """Return vectors whose products are what a side's scatter loses without each of its models."""
    return np.asarray(deviations * np.sqrt(count / np.maximum(count - 1, 1))[:, :, None])


def _products(a: Float[np.ndarray, "T B m"], b: Float[np.ndarray, "T B n"]) -> Float[np.ndarray, "T m n"]:
    return np.asarray(a.swapaxes(1, 2) @ b)


def _whitening(blocks: Blocks) -> Float[np.ndarray, "T m m"]:
    """Return, for every target, the matrix by which vectors are multiplied to have the unit covariance.

    The covariance's correlations are shrunk in proportion to their number over the degrees of freedom.
    """
    size = blocks.size
    scatter, freedom = np.zeros((blocks.targets, size, size)), np.zeros(blocks.targets)
    for block in blocks:
        flat = block.deviations.reshape(-1, size)
        scatter += flat.T @ flat
        for left in block.left:
            scatter -= _products(left, left)
        for count in (block.inside, block.outside):
            freedom += np.maximum(count - 1, 0).sum(axis=(1, 2))
    freedom = np.maximum(freedom, 1)
    deviation = np.sqrt(np.maximum(np.einsum("kaa->ka", scatter), 0) / freedom[:, None])
    dead = deviation <= np.finfo(np.float32).eps * deviation.max(axis=1, keepdims=True)
    inverse = np.where(dead, 0.0, 1 / np.where(dead, 1.0, deviation))
    correlation = scatter / freedom[:, None, None] * inverse[:, :, None] * inverse[:, None, :]
    shrunk = (freedom / (freedom + size))[:, None, None]
    correlation = shrunk * correlation + (1 - shrunk) * np.eye(size)
    values, axes = np.linalg.eigh(correlation)
    return np.asarray(inverse[:, :, None] * axes / np.sqrt(np.maximum(values, LEAST))[:, None, :])


def _learned(blocks: Blocks, whiten: Float[np.ndarray, "T m m"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for every target, a whitening in whose directions shifts are independent, [T, m, m], the coefficients of their
    expectation, [T, m + 1, m], and the variances around it, [T, 1, m].
    """
    targets, size = whiten.shape[:2]
    means, cross = np.zeros((targets, size + 1, size + 1)), np.zeros((targets, size + 1, size))
    squares, variance, count = np.zeros((targets, size, size)), np.zeros(targets), np.zeros(targets)
    for block in blocks:
        known = block.both
        place, shift = _with_one(block.centre @ whiten) * known, block.shift @ whiten * known
        means += _products(place, place)
        cross += _products(place, shift)
        squares += _products(shift, shift)
        variance += (block.variance * known).sum(axis=(1, 2))
        count += known.sum(axis=(1, 2))
    means += RIDGE * np.maximum(np.einsum("kaa->k", means), 1.0)[:, None, None] / (size + 1) * np.eye(size + 1)
    slope = np.linalg.solve(means, cross)
    fitted = cross.swapaxes(1, 2) @ slope
    freedom = np.maximum(count - size - 1, 1)
    spread, axes = np.linalg.eigh(_towards_sphere((squares - fitted) / freedom[:, None, None], freedom))
    # the fit explains some of noise too: a factor shrinks it, direction by direction, as James and Stein's does
    explained = np.einsum("kab,kac,kcb->kb", axes, fitted, axes)
    kept = np.maximum(1 - (size + 1) * spread / np.maximum(explained, np.finfo(np.float64).eps), 0)
    spread += (1 - kept) * explained / np.maximum(count, 1)[:, None]
    noise = variance / np.maximum(count, 1)
    # centres turn with the shifts
    around = np.zeros_like(means)
    around[:, 0, 0], around[:, 1:, 1:] = 1.0, axes
    slope = around.swapaxes(1, 2) @ slope @ axes * kept[:, None, :]
    return whiten @ axes, slope, np.maximum(spread - noise[:, None], 0)[:, None, :]


def _towards_sphere(covariance: Float[np.ndarray, "T m m"], freedom: Float[np.ndarray, " T"]) -> np.ndarray:
    """Return covariances shrunk towards equal variances by as much as sampling alone would spread their eigenvalues."""
    size = covariance.shape[1]
    mean = np.einsum("kaa->k", covariance) / size
    squares = np.square(covariance).sum(axis=(1, 2))
    apart = np.maximum(squares - size * mean**2, np.finfo(np.float64).tiny)
    weight = np.minimum((squares + (size * mean) ** 2) / freedom / apart, 1)[:, None, None]
    sphere: np.ndarray = weight * mean[:, None, None] * np.eye(size)
    return np.asarray((1 - weight) * (covariance + covariance.swapaxes(1, 2)) / 2 + sphere)


def _with_one(values: Float[np.ndarray, "T B m"]) -> Float[np.ndarray, "T B n"]:
    return np.concatenate([np.ones((*values.shape[:2], 1)), values], axis=2)
