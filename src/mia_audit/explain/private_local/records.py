"""The explanation set: records and the black box's values on them, streamed into one quadratic problem per query."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mia_audit.errors import UserError
from mia_audit.explain.private_local.solver import Problem
from mia_audit.explain.private_local.terms import capped, kernels
from mia_audit.pools.persons import Persons, numbered_ids

if TYPE_CHECKING:
    from jaxtyping import Bool, Int, Num, Shaped

    from mia_audit.explain.private_local.terms import ExplanationTerms

BLOCK = 1 << 25
"""Bytes of memory for the matrices of all queries in one pass over the records."""
NUMBERS = 1 << 17
"""Size of a block of records in numbers: it fits in a processor's cache.

It is constant, so that the rounding of sums over records does not depend on the other queries.
"""
DOMAIN = 1e6
"""Largest absolute value of a feature, in units of the scale."""
SLACK = 1e-6
"""Largest excess of |f| over 1 that is clipped: float32 probabilities are rounded."""


@dataclass(frozen=True)
class ExplanationSet:
    """m records [m, …] (an array, possibly memory-mapped), the black box's values [m, C] on them, and the unit of distance.

    Records are flattened and divided by `scale`: a number that must not depend on the records themselves. With the
    default, distances between standardised records are about 1. A record with a feature that is not finite or beyond
    `DOMAIN`, or with a value that is not in [−1, 1], counts among the m records but contributes nothing to any loss.

    If `persons` are given, they are the unit: a person contributes the mean of their records' terms, and the loss is
    the mean over persons. Such a mean moves a gradient no further than one record's term.
    """

    records: Num[np.ndarray, "m ..."]
    values: Float[np.ndarray, "m C"]
    scale: float
    persons: Persons | None = None
    """The person of every record, also if every person has one; None if the unit is the record."""

    @classmethod
    def from_arrays(
        cls,
        records: Num[np.ndarray, "m ..."],
        values: Float[np.ndarray, "m C"],
        scale: float | None = None,
        persons: Shaped[np.ndarray, " m"] | None = None,
    ) -> ExplanationSet:
        """Use the default scale if none is given: √n, or 255√n for pixels; `persons` are the ids of the records' persons.

        Raises UserError if there are no records, the values are not one row per record, or a record has no person.
        Single values are not checked here.
        """
        if not len(records):
            raise UserError("the explanation set has no records")
        for what, kind in (("records", records.dtype), ("values", np.asarray(values).dtype)):
            if kind.kind not in "buif":  # converting objects or texts can fail on a single one of them
                raise UserError(
                    f"{what} of the explanation set have the type {kind}; expected an array of real numbers"
                )
        values = _one_row_each(values, len(records), "the black box on the explanation set")
        if scale is None:
            features = int(np.prod(records.shape[1:]))
            scale = float(np.sqrt(features)) * (255.0 if records.dtype == np.uint8 else 1.0)
        if not 0 < scale < np.inf:
            raise UserError(f"scale {scale:g}: the unit of distance is a positive number")
        if persons is not None and len(persons) != len(records):
            raise UserError(
                f"the explanation set has {len(records)} records and {len(persons)} ids of persons: expected one id per record"
            )
        ids = None if persons is None else numbered_ids(np.asarray(persons), "persons of the explanation set")
        return cls(records, values, scale, None if ids is None else Persons.numbered(ids))

    def among(self, member: Bool[np.ndarray, " m"]) -> ExplanationSet:
        """Return the set of some of the records."""
        persons = None if self.persons is None else self.persons.ids[self.persons.of][member]
        return ExplanationSet.from_arrays(self.records[member], self.values[member], self.scale, persons)

    @property
    def unit(self) -> str:
        """The unit whose presence in the set is protected."""
        return "record" if self.persons is None else "person"

    @property
    def units(self) -> int:
        """The number of persons or records, which is public."""
        return len(self.records) if self.persons is None else len(self.persons)

    @cached_property
    def shares(self) -> Float[np.ndarray, " m"] | None:
        """1 over the number of records of each record's person; None if all shares are 1."""
        if self.persons is None or len(self.persons) == len(self.records):
            return None
        return 1 / self.persons.spread(self.persons.records)

    @property
    def whose(self) -> bytes:
        """The person of every record, for keys of noise; empty if every record has its own unit."""
        return b"" if self.persons is None or self.shares is None else self.persons.of.tobytes()

    @property
    def features(self) -> int:
        """The number of features n."""
        return int(np.prod(self.records.shape[1:]))

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of records, values and scale, which keys seeded noise and is never stored."""
        digest = hashlib.sha256(
            f"{self.records.dtype} {self.records.shape} {self.values.shape} {self.scale!r}".encode()
        )
        digest.update(self.values.tobytes())
        digest.update(self.whose)
        for first in range(0, len(self.records), max(1, NUMBERS // self.features)):
            digest.update(
                np.ascontiguousarray(self.records[first : first + max(1, NUMBERS // self.features)]).tobytes()
            )
        return digest.digest()

    def points(self, records: Num[np.ndarray, "q ..."]) -> Float[np.ndarray, "q n"]:
        """Return records as rows of features in units of the scale; UserError if they are not in this set's feature space."""
        records = np.asarray(records)
        if records.shape[1:] != self.records.shape[1:]:
            raise UserError(
                f"queries of shape {list(records.shape[1:])}; expected the shape of records in the explanation set,"
                f" {list(self.records.shape[1:])}; nothing was spent"
            )
        points = records.reshape(len(records), self.features).astype(np.float64)
        points /= self.scale
        if not (np.abs(points) <= DOMAIN).all():
            row = int(np.argmin((np.abs(points) <= DOMAIN).all(axis=1)))
            raise UserError(
                f"queries: query {row} has a feature that is not finite, or not between −{DOMAIN:g} and {DOMAIN:g} in units of the scale"
                f" ({self.scale:g}); nothing was spent"
            )
        return points

    def problems(
        self,
        queries: Float[np.ndarray, "q n"],
        values: Float[np.ndarray, " q"],
        classes: Int[np.ndarray, " q"],
        terms: ExplanationTerms,
    ) -> Iterator[Problem]:
        """Yield the loss of every query, given the queries in units of the scale, f at them, and the indices of the explained classes.

        One pass over the records computes as many queries as fit in memory. The records are read block by block.
        """
        batch = max(1, BLOCK // (8 * self.features**2))
        for first in range(0, len(queries), batch):
            part = slice(first, first + batch)
            yield from _moments(self, queries[part], values[part], classes[part], terms)

    def blocks(
        self,
    ) -> Iterator[
        tuple[Float[np.ndarray, "b n"], Float[np.ndarray, "b C"], Bool[np.ndarray, " b"] | Float[np.ndarray, " b"]]
    ]:
        """Yield points, values and weights of one block of records after another.

        A record's weight is 1, or its share of its person; weight, points and values of a record that does not
        contribute are 0.
        """
        rows = max(1, NUMBERS // self.features)
        for first in range(0, len(self.records), rows):
            part = slice(first, first + rows)
            with np.errstate(all="ignore"):  # a warning would reveal a record
                points = np.asarray(self.records[part]).reshape(-1, self.features).astype(np.float64)
                points /= self.scale
                values = self.values[part]
                kept = (np.abs(points) <= DOMAIN).all(axis=1) & (np.abs(values) <= 1 + SLACK).all(axis=1)
                if not kept.all():
                    points, values = np.where(kept[:, None], points, 0.0), np.where(kept[:, None], values, 0.0)
            yield points, np.clip(values, -1, 1), kept if self.shares is None else kept * self.shares[part]


def _one_row_each(values: Float[np.ndarray, "q C"], count: int, what: str) -> Float[np.ndarray, "q C"]:
    with np.errstate(all="ignore"):  # a warning would reveal a record
        values = np.asarray(values, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != count:
        raise UserError(
            f"{what}: values of shape {list(values.shape)} for {count} records; expected one row per record"
        )
    return values


def checked_values(values: Float[np.ndarray, "q C"], count: int, what: str) -> Float[np.ndarray, "q C"]:
    """Return values as float64 [count, C], clipped to [−1, 1]; UserError if they lie outside by more than a rounding error."""
    values = _one_row_each(values, count, what)
    if not (np.abs(values) <= 1 + SLACK).all():
        row = int(np.argmin((np.abs(values) <= 1 + SLACK).all(axis=1)))
        raise UserError(
            f"{what}: a value of {values[row].tolist()} at record {row} is outside [−1, 1]; scale the explained quantity, for"
            " example to 2p − 1 for a probability p"
        )
    return np.asarray(np.clip(values, -1, 1))


def largest(values: Float[np.ndarray, "q C"]) -> Int[np.ndarray, " q"]:
    """Return the class with the largest value, which is explained; 0 if there is a single column."""
    return np.asarray(values.argmax(axis=1))


def _weights(away: Float[np.ndarray, "b n"], terms: ExplanationTerms) -> Float[np.ndarray, " b"]:
    distance = np.linalg.norm(away, axis=1)
    if "weight" in terms.as_published:
        return kernels["gaussian"](distance)
    return capped(kernels[terms.kernel], distance, terms.c, terms.span)


def _moments(
    explained: ExplanationSet,
    queries: Float[np.ndarray, "q n"],
    values: Float[np.ndarray, " q"],
    classes: Int[np.ndarray, " q"],
    terms: ExplanationTerms,
) -> Iterator[Problem]:
    """Sum every query's weighted moments about that query itself, with one product per query.

    Moments about a common point would lose digits for queries far from it. This rounding error would depend on the
    records, and the noise would not cover it.
    """
    n = explained.features
    grams, moments, squares = np.zeros((len(queries), n, n)), np.zeros((len(queries), n)), np.zeros(len(queries))
    fitted = values if terms.centred else np.zeros_like(values)
    for points, labels, counted in explained.blocks():
        for row, (query, kind, value) in enumerate(zip(queries, classes, fitted, strict=True)):
            away, target = points - query, labels[:, kind] - value
            roots = np.sqrt(_weights(away, terms) * counted)
            away *= roots[:, None]
            target *= roots
            grams[row] += away.T @ away
            moments[row] += away.T @ target
            squares[row] += target @ target
    for gram, moment, square in zip(grams, moments, squares, strict=True):
        yield Problem(gram, moment, float(square), explained.units)


QUERIES = 256
"""Number of queries whose distances to a block of records are held in memory at once."""


def nearest_records(explained: ExplanationSet, queries: Int[np.ndarray, " q"], count: int) -> Int[np.ndarray, "q k"]:
    """Return the `count` records nearest to every query, or all if there are fewer; the query itself is not among them.

    Queries are given by their indices in the set.
    """
    points = explained.points(explained.records[queries])
    kept = min(count, len(explained.records) - 1)
    return np.concatenate(
        [
            _nearest(explained, points[first : first + QUERIES], queries[first : first + QUERIES], kept)
            for first in range(0, len(queries), QUERIES)
        ]
    )


def _nearest(explained: ExplanationSet, points: np.ndarray, queries: np.ndarray, count: int) -> Int[np.ndarray, "q k"]:
    distances, places = np.empty((len(points), 0)), np.empty((len(points), 0), dtype=np.int64)
    first = 0
    for block, _, _ in explained.blocks():
        squares = (
            np.square(block).sum(axis=1) - 2 * points @ block.T
        )  # squared distances, without the term that is the same for all records of a query
        here = np.arange(first, first + len(block))
        squares[queries[:, None] == here] = np.inf
        distances = np.concatenate([distances, squares], axis=1)
        places = np.concatenate([places, np.broadcast_to(here, squares.shape)], axis=1)
        best = np.argpartition(distances, min(count, distances.shape[1]) - 1, axis=1)[:, :count]
        distances, places = np.take_along_axis(distances, best, 1), np.take_along_axis(places, best, 1)
        first += len(block)
    return places
