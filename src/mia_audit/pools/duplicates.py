"""Read records once, in parallel and in bounded memory, and detect duplicates."""

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int, Num

from mia_audit.errors import UserError
from mia_audit.pools.catalogue import BadRecordError, Rows
from mia_audit.runtime.progress import Reporter

TASK = 16
"""Number of records that a thread reads at a time."""
AHEAD = 4
"""Largest number of tasks per thread that wait to be written."""


class Store:
    """Records on disk in the order in which they were added. They are in an unnamed file, which disappears when nothing uses it."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic], folder: Path | None) -> None:
        self.shape, self.dtype = shape, dtype
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- lives as long as the store
        self._bytes = dtype.itemsize * int(np.prod(shape))

    def add(self, record: Num[np.ndarray, "..."]) -> None:
        """Append a record."""
        self._file.write(np.ascontiguousarray(record).data)

    def read(self, positions: Sequence[int] | Int[np.ndarray, " B"]) -> Num[np.ndarray, "B ..."]:
        """Return the records at some positions."""
        self._file.flush()
        batch = np.empty((len(positions), *self.shape), self.dtype)
        for record, position in zip(batch, positions, strict=True):
            os.preadv(self._file.fileno(), [memoryview(record).cast("B")], int(position) * self._bytes)
        return batch


@dataclass(frozen=True)
class Distinct:
    """Distinct records: their store, their rows in the source and content hashes in the same order, and the dropped duplicates."""

    store: Store
    rows: Int[np.ndarray, " n"]
    sha256: list[str]
    read: int
    duplicates: int


def distinct_records(
    records: Rows,
    labels: Int[np.ndarray, " n"],
    order: Int[np.ndarray, " n"],
    wanted: int,
    where: str,
    folder: Path | None,
    threads: int,
    report: Reporter,
    persons: Int[np.ndarray, " n"] | None = None,
) -> Distinct:
    """Read records in an order until `wanted` distinct ones or all are read, and keep the first of equal records.

    Records are equal if their stored content and their labels are the same. If `persons` is given, it has the number of
    every record's person, and a person's records must follow each other in the order. Then `wanted` counts persons, and
    equal records of one person are kept, because they are always in a training set together. Raises UserError that
    names every record that cannot be read.
    """
    store: Store | None = None
    rows: list[int] = []
    hashes: list[str] = []
    bad: list[str] = []
    read, distinct, last, seen = 0, 0, -1, dict[tuple[str, int], int]()
    for place, outcome in enumerate(_outcomes(records, order, threads)):
        owner = int(order[place]) if persons is None else int(persons[order[place]])
        if distinct == wanted and owner != last:
            break
        read += 1
        report.step(int(owner != last), 1)
        if isinstance(outcome, BadRecordError):
            bad.append(str(outcome))
            continue
        row, record, digest = outcome
        if seen.setdefault((digest, int(labels[row])), owner) != owner:
            continue
        distinct += owner != last
        last = owner
        store = store or Store(record.shape, record.dtype, folder)
        store.add(record)
        rows.append(row)
        hashes.append(digest)
    if bad:
        raise UserError(
            f"{where}: {len(bad)} of {read} records cannot be used: {'; '.join(bad)}. Repair them or remove them"
        )
    if store is None:
        raise UserError(f"{where}: there is no record")
    return Distinct(store, np.array(rows, dtype=np.int64), hashes, read, read - len(rows))


Outcome = tuple[int, np.ndarray, str] | BadRecordError


def _outcomes(records: Rows, order: Int[np.ndarray, " n"], threads: int) -> Iterator[Outcome]:
    """Yield row, record and hash of every record in order, reading a few tasks ahead."""

    def task(rows: np.ndarray) -> list[Outcome]:
        return [_outcome(records, int(row)) for row in rows]

    tasks = (order[start : start + TASK] for start in range(0, len(order), TASK))
    with ThreadPoolExecutor(threads) as executor:
        ahead = deque(executor.submit(task, rows) for rows in islice(tasks, AHEAD * threads))
        while ahead:
            yield from ahead.popleft().result()
            ahead += [executor.submit(task, rows) for rows in islice(tasks, 1)]


def _outcome(records: Rows, row: int) -> Outcome:
    try:
        record = records[row]
    except BadRecordError as error:
        return error
    return row, record, hashlib.sha256(np.ascontiguousarray(record).data).hexdigest()
