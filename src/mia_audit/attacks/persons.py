"""Aggregate records' scores to scores of persons, after scoring and for any attack.

A model trains on all of a person's records or on none, so an attack on a person combines all of their records. Given
the membership, records are assumed to be independent: the log likelihood ratio of a person is the sum over their
records (METHODS section 12). The maximum and the mean are reported too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from mia_audit.pools.persons import Persons

RECORD, PERSON = "record", "person"
"""The units of a score."""

NONE = "none"
"""The name of the aggregate where scores are those of single records."""


def _sum(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    sums: np.ndarray = np.add.reduceat(np.where(np.isnan(values), 0, values), starts)
    return sums


def _mean(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    means: np.ndarray = _sum(values, starts, counts) / np.maximum(counts, 1)
    return means


def _largest(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    most: np.ndarray = np.maximum.reduceat(np.where(np.isnan(values), -np.inf, values), starts)
    return most


AGGREGATES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": _sum,
    "mean": _mean,
    "max": _largest,
}
"""Aggregates by name. They map sorted scores, and the start and number of every person's scores, to one score per person."""

HEADLINE = next(iter(AGGREGATES))
"""The aggregate that is reported first: for log likelihood ratios, the ratio of all of a person's records together."""


def of_persons(scores: Float[np.ndarray, "N T"], persons: Persons, aggregate: str) -> Float[np.ndarray, "P T"]:
    """Aggregate the scores of each person's records, column by column. A person whose records all lack a score gets NaN.

    A person's scores are added in float64 and in ascending order, so that the result does not depend on the order of
    rows.
    """
    starts = np.cumsum(persons.records) - persons.records
    aggregated = np.empty((len(persons), scores.shape[1]), dtype=np.float64)
    for column in range(scores.shape[1]):
        order = np.lexsort((scores[:, column], persons.of))
        values = scores[order, column].astype(np.float64, copy=False)
        counts = np.add.reduceat(~np.isnan(values), starts, dtype=np.int64)
        aggregated[:, column] = np.where(counts > 0, AGGREGATES[aggregate](values, starts, counts), np.nan)
    return aggregated


def in_unit(values: np.ndarray, persons: Persons | None, aggregate: str) -> np.ndarray:
    """Return records' scores unchanged if `aggregate` is `none`, else those of persons."""
    return values if persons is None or aggregate == NONE else of_persons(values, persons, aggregate)


def aggregates_of(persons: Persons | None) -> tuple[str, ...]:
    """List the aggregates of scores: `none` for records, and those of persons where persons are known."""
    return (NONE,) if persons is None else (NONE, *AGGREGATES)


def unit_of(aggregate: str) -> str:
    """Return the unit (record or person) that an aggregate's scores are for."""
    return RECORD if aggregate == NONE else PERSON
