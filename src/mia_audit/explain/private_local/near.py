"""The nearest records to a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.private_local.records import ExplanationSet

if TYPE_CHECKING:
    from jaxtyping import Int

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
