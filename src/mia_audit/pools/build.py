"""Build a pool from a source: drop duplicates, set public records aside, draw audited records, add noise to labels.

Read records once, in parallel and in bounded memory, and detect duplicates.
"""

import hashlib
import json
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Num, Shaped

from mia_audit.errors import UserError
from mia_audit.pools.frames import FRAME
from mia_audit.pools.images import Images
from mia_audit.pools.persons import Persons, check_apart
from mia_audit.pools.scaling import STANDARDISATIONS, Constants, Scaling
from mia_audit.pools.section import (
    BadRecordError,
    Dataset,
    Rows,
    Source,
    check_enough,
    check_kind,
    check_numbers,
    load_public,
)
from mia_audit.runtime.progress import Reporter, reporter
from mia_audit.seeds import generator

TASK = 16
"""Number of records that a thread reads at a time."""
AHEAD = 4
"""Largest number of tasks per thread that wait to be written."""


class RecordStore:
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
    """Distinct records: their source and store, their rows in it and content hashes in the same order, and the dropped duplicates."""

    source: Source
    store: RecordStore
    rows: Int[np.ndarray, " n"]
    sha256: list[str]
    read: int
    duplicates: int

    @property
    def contents(self) -> set[tuple[str, int]]:
        """The content and the label of every record."""
        return set(zip(self.sha256, self.source.labels[self.rows].tolist(), strict=True))


def distinct_records(
    source: Source,
    order: Int[np.ndarray, " n"],
    wanted: int,
    where: str,
    folder: Path | None,
    threads: int,
    report: Reporter,
    persons: Int[np.ndarray, " n"] | None = None,
    public: Distinct | None = None,
) -> Distinct:
    """Read records in an order until `wanted` distinct ones or all are read, and keep the first of equal records.

    Records are equal if their stored content and their labels are the same; one that equals a `public` record is
    dropped. If `persons` is given, it has the number of every record's person, and a person's records must follow each
    other in the order. Then `wanted` counts persons, and all records are kept: one person's records would otherwise
    decide about those of others. Raises UserError that names every record that cannot be read.
    """
    store: RecordStore | None = None
    rows: list[int] = []
    hashes: list[str] = []
    bad: list[str] = []
    read, distinct, last = 0, 0, -1
    seen = set() if public is None else public.contents
    for place, outcome in enumerate(_outcomes(source.records, order, threads)):
        owner = int(order[place]) if persons is None else int(persons[order[place]])
        if distinct == wanted and owner != last:
            break
        read += 1
        report.step(int(owner != last), 1)
        if isinstance(outcome, BadRecordError):
            bad.append(str(outcome))
            continue
        row, record, digest = outcome
        if persons is None:
            if (digest, int(source.labels[row])) in seen:
                continue
            seen.add((digest, int(source.labels[row])))
        distinct += owner != last
        last = owner
        store = store or RecordStore(record.shape, record.dtype, folder)
        store.add(record)
        rows.append(row)
        hashes.append(digest)
    if bad:
        raise UserError(
            f"{where}: {len(bad)} of {read} records cannot be used: {'; '.join(bad)}. Repair or remove them"
        )
    if store is None:
        raise UserError(f"{where}: there is no record")
    return Distinct(
        source=source,
        store=store,
        rows=np.array(rows, dtype=np.int64),
        sha256=hashes,
        read=read,
        duplicates=read - len(rows),
    )


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
    return row, record, record_digest(record)


def record_digest(record: np.ndarray) -> str:
    """Return the SHA-256 of a record's bytes as they are stored, by which equal records are known."""
    return hashlib.sha256(np.ascontiguousarray(record).data).hexdigest()


CHUNK = 2**24
"""Number of bytes of records in memory at once."""


@dataclass(frozen=True)
class Data:
    """The audited or the public records, read from their store chunk by chunk, and standardised as they are read."""

    store: RecordStore
    positions: Int[np.ndarray, " n"]
    scaling: Scaling | None = None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, …]."""
        return (len(self), *self.store.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of stored values: uint8 for images, float32 for tables."""
        return self.store.dtype

    def chunks(self) -> Iterator[Num[np.ndarray, "B ..."]]:
        """Yield the records in their order."""
        rows = max(1, CHUNK // (self.dtype.itemsize * int(np.prod(self.store.shape))))
        for start in range(0, len(self), rows):
            yield self._read(self.positions[start : start + rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._read(self.positions).astype(dtype or self.dtype)

    def _read(self, positions: np.ndarray) -> np.ndarray:
        records = self.store.read(positions)
        return records if self.scaling is None else self.scaling.apply(records)


@dataclass(frozen=True)
class PoolRecords:
    """The audited or the public records: data [n, …], labels [n], content hashes [n], rows in the source [n].

    A mask [n] marks the labels that were replaced by wrong ones. `persons` are the ids of the records' persons [n], if
    the section names them. `files` are the records' files [n], if each has its own.
    """

    data: Data
    labels: Int[np.ndarray, " n"]
    sha256: list[str]
    source: Int[np.ndarray, " n"]
    flipped: Bool[np.ndarray, " n"]
    persons: Shaped[np.ndarray, " n"] | None = None
    files: Sequence[str] | None = None


@dataclass(frozen=True)
class Pool:
    """The audited and the public records of a data set, and the metadata about them."""

    audited: PoolRecords
    public: PoolRecords
    metadata: dict[str, Any]


def build_pool(
    source: Source, section: Dataset, name: str, seed: int, folder: Path | None = None, threads: int = 1
) -> Pool:
    """Build the pool of a dataset section; records are kept in an unnamed file in `folder`.

    Records with equal bytes and labels make membership ambiguous: all but the first are dropped and counted. Only the
    requested number of records is read, unless `take` requires more. If the unit is the person, persons are drawn,
    counted and set aside with all of their records, get wrong labels together, and keep all of their records. Raises
    UserError if there are too few records, if a record cannot be read, or if its label has no class.
    """
    where = f"datasets.{name}"
    constants, persons = check_source(source, section, where)
    count = len(source.records)
    by_person = section.by_person and source.persons is not None
    wanted = section.drawn + section.records if section.records is not None else len(persons)
    others = None
    with reporter() as report:
        if section.public_path:
            more = load_public(source, section, where)
            if by_person:
                check_apart(source.persons, more.persons, section.path, section.public_path)
            every = np.arange(len(more.records))
            report.begin(f"reading public records of {name}", 1, len(every))
            others = distinct_records(
                more, every, len(every), where=f"{where}.public", folder=folder, threads=threads, report=report
            )
            report.end(f"{len(others.rows)} distinct records")
        report.begin(f"reading {name}", 1, wanted)
        order = ORDERS[section.take](source, persons, seed, name, threads)
        distinct = distinct_records(
            source,
            order,
            wanted,
            where=where,
            folder=folder,
            threads=threads,
            report=report,
            persons=persons.of if by_person else None,
            public=others,
        )
        report.end(f"{len(distinct.rows)} distinct records, {distinct.duplicates} duplicates dropped")
    left = Persons.numbered(persons.of[distinct.rows])
    if section.records is None:
        wanted = len(left)
    check_enough(section, len(left), "persons" if section.by_person else "distinct records", where)
    sides = (np.flatnonzero(np.isin(left.of, side)) for side in SIDES[section.take](section.drawn, wanted))
    public, audited = (side[np.argsort(distinct.rows[side])] for side in sides)
    opened = distinct if others is None else others
    public = public if others is None else np.arange(len(others.rows))
    scaling = constants(lambda: np.concatenate(list(Data(opened.store, public).chunks())))
    metadata = {
        "name": name,
        "kind": source.kind,
        "shape": list(distinct.store.shape),
        "classes": source.classes,
        "features": source.features,
        "source_records": count,
        "read": distinct.read,
        "duplicates": distinct.duplicates,
        "collected": _collected(source, section),
        "section": section.digest,
        "label_noise": section.label_noise,
    }
    if by_person:
        metadata["unit"] = "person"
    if source.frame:
        metadata[FRAME] = list(source.frame)
    if source.kind == "image":
        metadata |= {key: value for key in ("mean", "std") if (value := getattr(section, key)) is not None}
    else:
        metadata |= {"standardise": section.standardise, **(scaling.metadata() if scaling else {})}

    noisy = _with_label_noise(distinct, audited, persons, share=section.label_noise, name=name, seed=seed)
    sure = opened.source.labels[opened.rows[public]].astype(np.int32)
    clean = sure, np.zeros(len(sure), dtype=bool)
    return Pool(_side(distinct, audited, scaling, *noisy), _side(opened, public, scaling, *clean), metadata)


def _side(
    read: Distinct,
    positions: Int[np.ndarray, " n"],
    scaling: Scaling | None,
    labels: Int[np.ndarray, " n"],
    flipped: Bool[np.ndarray, " n"],
) -> PoolRecords:
    source, rows = read.source, read.rows[positions]
    hashes = [read.sha256[position] for position in positions]
    ids = None if source.persons is None else source.persons[rows]
    files = None if source.files is None else [source.files[row] for row in rows]
    return PoolRecords(
        data=Data(read.store, positions, scaling),
        labels=labels,
        sha256=hashes,
        source=rows,
        flipped=flipped,
        persons=ids,
        files=files,
    )


def _collected(source: Source, section: Dataset) -> dict[str, Any]:
    """Return the classes, and the values of columns of text, that were collected from the records and not stated."""
    classes = {} if source.published or section.classes else {"classes": list(source.classes)}
    categories = {name: list(values) for name, values in source.collected.items()}
    return classes | ({"categories": categories} if categories else {})


def check_source(source: Source, section: Dataset, where: str) -> tuple[Constants, Persons]:
    """Return the constants of a source's standardisation, and its persons (or records); UserError if no pool can be built from it."""
    _check_labels(source, where)
    check_kind(section, source.kind, where)
    if source.kind == "image":
        _check_channels(section, source.records.shape[1], where)
    constants = STANDARDISATIONS[section.standardise](source, section, where)
    by_person = section.by_person and source.persons is not None
    ids = source.persons if by_person and source.persons is not None else np.arange(len(source.records))
    persons = Persons.numbered(ids)
    check_enough(section, len(persons), "persons" if section.by_person else "distinct records", where)
    return constants, persons


def _by_hash(source: Source, persons: Persons, seed: int, name: str, threads: int) -> Int[np.ndarray, " n"]:
    """Order records by their persons' hashes, keyed by the seed, so that one more person displaces at most one of the first n.

    A person's hash is the smallest hash of their records. A record's hash is that of content and label; an image's
    content is its file, which is not decoded.
    """
    key = hashlib.blake2b(json.dumps([seed, "pool", name]).encode()).digest()
    rows = range(len(source.records))

    def hashed(row: int) -> bytes:
        content = _content(source.records, row) + b"%d" % source.labels[row]
        return hashlib.blake2b(content, key=key, digest_size=16).digest()

    with ThreadPoolExecutor(threads) as executor:
        hashes = list(executor.map(hashed, rows) if isinstance(source.records, Images) else map(hashed, rows))
    least: dict[int, bytes] = {}
    for row, person in enumerate(persons.of.tolist()):
        least[person] = min(least.get(person, hashes[row]), hashes[row])
    keys = [(least[person], person, hashes[row]) for row, person in enumerate(persons.of.tolist())]
    return np.array(sorted(rows, key=keys.__getitem__), dtype=np.int64)


def _content(records: Rows, row: int) -> bytes:
    """Return the bytes that identify a record, independent of its position."""
    return records.content(row) if isinstance(records, Images) else np.ascontiguousarray(records[row]).tobytes()


ORDERS: dict[str, Callable[[Source, Persons, int, str, int], Int[np.ndarray, " n"]]] = {
    "sample": _by_hash,
    "first": lambda source, persons, seed, name, threads: np.argsort(persons.of, kind="stable"),
}
"""The order in which records are read, by the value of `take`. The records of a person follow each other."""

SIDES: dict[str, Callable[[int, int], tuple[Int[np.ndarray, " p"], Int[np.ndarray, " a"]]]] = {
    "sample": lambda public, wanted: (np.arange(public), np.arange(public, wanted)),
    "first": lambda public, wanted: (np.arange(wanted - public, wanted), np.arange(wanted - public)),
}
"""The positions of public and of audited persons in reading order, by the value of `take`. With `first`, the audited ones come first."""


def _check_labels(source: Source, where: str) -> None:
    if not len(source.labels):
        raise UserError(f"{where}: there is no record")
    check_numbers(source, where)
    if len(np.unique(source.labels)) < 2:
        only = source.classes[int(source.labels[0])]
        raise UserError(f"{where}: all records have the class '{only}', but a classifier needs two or more classes")


def _check_channels(section: Dataset, channels: int, where: str) -> None:
    for key in ("mean", "std"):
        given = getattr(section, key)
        if isinstance(given, tuple) and len(given) != channels:
            raise UserError(
                f"{where}.{key}: {len(given)} numbers, but the images have {channels} channels: give one number per channel, or a single number"
            )


def _with_label_noise(
    read: Distinct, positions: Int[np.ndarray, " n"], every: Persons, share: float, name: str, seed: int
) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return the labels of records; those of a `share` of the persons, drawn by the seed, are replaced with another class."""
    rows, classes = read.rows[positions], len(read.source.classes)
    labels, persons = read.source.labels[rows], Persons.numbered(every.of[rows])
    random = generator(seed, "label noise", name)
    chosen = np.zeros(len(persons), dtype=bool)
    chosen[random.permutation(len(persons))[: round(share * len(persons))]] = True
    shift = persons.spread(random.integers(1, classes, size=len(persons)))
    flipped = persons.spread(chosen)
    return np.where(flipped, (labels + shift) % classes, labels).astype(np.int32), flipped
