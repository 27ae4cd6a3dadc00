"""The explanation set: records and what the black box says of them, streamed into one quadratic problem a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.private_local.solver import Problem
from mia_audit.explain.weights import capped, kernels

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Num

    from mia_audit.explain.private_local.terms import Terms

BLOCK = 1 << 25
"""Bytes of an array that is held for one block of records and queries; a handful of such arrays are held at once."""
PACKED = 128
"""Up to so many features all queries' moments come out of one matrix product; beyond, a product per query is quicker."""
SLACK = 1e-6
"""|f| may exceed 1 by the rounding of 32-bit probabilities; it is clipped then."""


@dataclass(frozen=True)
class ExplanationSet:
    """m records [m, …] (an array, possibly memory-mapped), the black box's values [m, C] on them, and the unit of distance.

    Records are flattened, offset and divided by `scale`: a number that must not depend on the records themselves. The
    default makes distances between standardised records about 1. Raises UserError where a value is not in [−1, 1].
    """

    records: Num[np.ndarray, "m ..."]
    values: Float[np.ndarray, "m C"]
    scale: float

    @classmethod
    def of(
        cls, records: Num[np.ndarray, "m ..."], values: Float[np.ndarray, "m C"], scale: float | None = None
    ) -> ExplanationSet:
        """Check the values, and take the usual scale where none is given: √n, and 255√n for pixels."""
        if not len(records):
            raise UserError("the explanation set has no records")
        values = checked_values(values, len(records), "the black box on the explanation set")
        if scale is None:
            features = int(np.prod(records.shape[1:]))
            scale = float(np.sqrt(features)) * (255.0 if records.dtype == np.uint8 else 1.0)
        if not 0 < scale < np.inf:
            raise UserError(f"scale {scale:g}: the unit of distance is a positive number")
        return cls(records, values, scale)

    @property
    def features(self) -> int:
        """The number of features n."""
        return int(np.prod(self.records.shape[1:]))

    def points(self, records: Num[np.ndarray, "q ..."]) -> Float[np.ndarray, "q n"]:
        """Return records as rows of features in units of the scale; UserError where they are not of this set's feature space."""
        records = np.asarray(records)
        if records.shape[1:] != self.records.shape[1:]:
            raise UserError(
                f"queries of shape {list(records.shape[1:])}: the explanation set's records have shape"
                f" {list(self.records.shape[1:])}; nothing was spent"
            )
        points = records.reshape(len(records), self.features).astype(np.float64)
        if not np.isfinite(points.sum()):
            raise UserError("queries: a feature is not a finite number; nothing was spent")
        return points / self.scale

    def problems(
        self,
        queries: Float[np.ndarray, "q n"],
        values: Float[np.ndarray, " q"],
        classes: Int[np.ndarray, " q"],
        terms: Terms,
    ) -> Iterator[Problem]:
        """Yield the loss of every query: points in units of the scale, f there, and which of the C values is explained.

        One pass over the records serves as many queries as fit in memory; the records are read block by block.
        """
        features, kinds = self.features, self.values.shape[1]
        packed = features <= PACKED
        columns = (features * (features + 1) // 2 + features * (kinds + 1) + 2 * kinds + 1) if packed else features**2
        batch = max(1, BLOCK // (8 * columns))
        for first in range(0, len(queries), batch):
            part = slice(first, first + batch)
            moments = _packed_moments if packed else _moments
            yield from moments(self, queries[part], values[part], classes[part], terms, columns)

    def blocks(self, rows: int) -> Iterator[tuple[Float[np.ndarray, "b n"], Float[np.ndarray, "b C"]]]:
        """Yield points and values of `rows` records at a time."""
        for first in range(0, len(self.records), rows):
            part = slice(first, first + rows)
            block = np.asarray(self.records[part]).reshape(-1, self.features).astype(np.float64)
            block /= self.scale
            yield block, self.values[part]


def checked_values(values: Float[np.ndarray, "q C"], count: int, what: str) -> Float[np.ndarray, "q C"]:
    """Return values as float64 [count, C], clipped to [−1, 1]; UserError where they are not there by more than rounding."""
    values = np.asarray(values, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != count:
        raise UserError(f"{what}: values of shape {list(values.shape)} for {count} records; expected one row a record")
    if not (np.abs(values) <= 1 + SLACK).all():
        row = int(np.argmin((np.abs(values) <= 1 + SLACK).all(axis=1)))
        raise UserError(
            f"{what}: a value of {values[row].tolist()} at record {row} is outside [−1, 1]; scale what is explained, for"
            " example 2p − 1 for a probability p"
        )
    return np.asarray(np.clip(values, -1, 1))


def _weights(
    points: Float[np.ndarray, "b n"], queries: Float[np.ndarray, "q n"], terms: Terms
) -> Float[np.ndarray, "q b"]:
    distance: Float[np.ndarray, "q b"] = queries @ points.T
    distance *= -2
    distance += np.square(points).sum(axis=1)
    distance += np.square(queries).sum(axis=1)[:, None]
    distance = np.sqrt(np.maximum(distance, 0, out=distance), out=distance)
    if "weight" in terms.as_published:
        return kernels["gaussian"](distance)
    return capped(kernels[terms.kernel], distance, terms.c, terms.span)


def _packed_moments(
    explained: ExplanationSet,
    queries: Float[np.ndarray, "q n"],
    values: Float[np.ndarray, " q"],
    classes: Int[np.ndarray, " q"],
    terms: Terms,
    columns: int,
) -> Iterator[Problem]:
    """Weighted moments about a common centre by one matrix product, then moved to every query.

    The centre is the queries' mean: any would do, one near them loses the fewest digits.
    """
    n, kinds = explained.features, explained.values.shape[1]
    centre = queries.mean(axis=0)
    shifted = queries - centre
    upper = np.triu_indices(n)
    total = np.zeros((len(queries), columns))
    for points, labels in explained.blocks(max(64, BLOCK // (8 * max(columns, len(queries))))):
        points -= centre
        parts = [points[:, [row]] * points[:, row:] for row in range(n)]
        parts += [points, np.ones((len(points), 1)), labels, labels**2]
        parts += [points * labels[:, [kind]] for kind in range(kinds)]
        total += _weights(points, shifted, terms) @ np.concatenate(parts, axis=1)
    cuts = np.cumsum([len(upper[0]), n, 1, kinds, kinds])
    second, first, weight, label, square, mixed = np.split(total, cuts, axis=1)
    fitted = values if terms.centred else np.zeros_like(values)
    for row, (point, kind, value) in enumerate(zip(shifted, classes, fitted, strict=True)):
        gram = np.zeros((n, n))
        gram[upper] = second[row]
        gram += np.triu(gram, 1).T
        moved = np.outer(point, first[row])
        gram += weight[row] * np.outer(point, point) - moved - moved.T
        moment = mixed[row, kind * n : (kind + 1) * n] - value * first[row]
        moment = moment - point * (label[row, kind] - value * weight[row, 0])
        spread = square[row, kind] - 2 * value * label[row, kind] + value**2 * weight[row, 0]
        yield Problem(gram, moment, float(spread), len(explained.records))


def _moments(
    explained: ExplanationSet,
    queries: Float[np.ndarray, "q n"],
    values: Float[np.ndarray, " q"],
    classes: Int[np.ndarray, " q"],
    terms: Terms,
    columns: int,
) -> Iterator[Problem]:
    """The same, with a product for every query."""
    n = explained.features
    grams, moments, squares = np.zeros((len(queries), n, n)), np.zeros((len(queries), n)), np.zeros(len(queries))
    fitted = values if terms.centred else np.zeros_like(values)
    for points, labels in explained.blocks(max(1, BLOCK // (8 * n))):
        weights = _weights(points, queries, terms)
        for row, (query, kind, value) in enumerate(zip(queries, classes, fitted, strict=True)):
            away, target = points - query, labels[:, kind] - value
            weighted = away * weights[row][:, None]
            grams[row] += weighted.T @ away
            moments[row] += weighted.T @ target
            squares[row] += weights[row] @ target**2
    for gram, moment, square in zip(grams, moments, squares, strict=True):
        yield Problem(gram, moment, float(square), len(explained.records))
