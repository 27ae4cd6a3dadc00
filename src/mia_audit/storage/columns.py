"""Columns of Parquet files, read batch by batch, because a setting's whole column would be larger than anything else in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from jaxtyping import Int, Shaped

    Parts = Iterable[Shaped[np.ndarray, " b"]]

BATCH_ROWS = 1 << 18
"""Number of rows of a column that are read at a time."""


def column_parts(
    file: pq.ParquetFile, name: str, where: str, row_groups: Sequence[int] | None = None
) -> Iterator[np.ndarray]:
    """Yield a column's values in parts, from all row groups or some; raises UserError after the last part if cells were empty."""
    empty = 0
    for batch in file.iter_batches(BATCH_ROWS, columns=[name], row_groups=row_groups):
        values = batch.column(0)
        empty += values.null_count
        if not empty:
            yield values.to_numpy(zero_copy_only=False)
    if empty:
        raise UserError(f"{where}: column '{name}' has {empty} empty cells; expected a value in each")


def joined(parts: Parts) -> np.ndarray:
    """Return the values of all parts."""
    values = list(parts)
    return np.concatenate(values) if values else np.empty(0)


def filled(parts: Parts, rows: int, dtype: type) -> np.ndarray:
    """Return the `rows` values of all parts as an array of this type."""
    values: np.ndarray = np.empty(rows, dtype=dtype)
    start = 0
    for part in parts:
        values[start : start + len(part)] = part
        start += len(part)
    return values


def stretches(parts: Parts) -> tuple[np.ndarray, Int[np.ndarray, " s"]]:
    """Return the value of every run of equal values, and the row at which each run begins."""
    values: list[np.ndarray] = []
    starts: list[np.ndarray] = []
    row, last = 0, None
    for part in parts:
        begins = np.flatnonzero(np.append(last is None or part[0] != last, part[1:] != part[:-1]))
        values.append(part[begins])
        starts.append(begins + row)
        row, last = row + len(part), part[-1]
    return joined(values), joined(starts)


def repeated(parts: Parts, count: int) -> np.ndarray | None:
    """Return the first `count` values if all others repeat them in the same order, else None."""
    first, row = np.empty(0), 0
    for part in parts:
        if not row:
            first = np.empty(count, dtype=part.dtype)
        while len(part):
            place = row % count
            here = part[: count - place]
            if row < count:
                first[place : place + len(here)] = here
            elif (first[place : place + len(here)] != here).any():
                return None
            part, row = part[len(here) :], row + len(here)
    return first
