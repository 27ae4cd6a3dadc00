"""A pool on disk: memory-mapped arrays, their tables, and the membership matrix.

Membership designs (half, bernoulli, split), which decide the records in every shadow model's training set.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int, Num, Shaped

from mia_audit.errors import UserError, first_line
from mia_audit.pools.build import Data, Pool, PoolRecords
from mia_audit.pools.persons import Persons, check_apart, missing_ids, numbered_ids
from mia_audit.pools.section import Draw, Membership
from mia_audit.regular_files import private_folder
from mia_audit.seeds import generator
from mia_audit.storage import atomic_write, open_table, read_table, sha256, table_metadata, write_table
from mia_audit.storage.unpacked import NOT_NUMPY

ARRAY = "array_sha256"
"""The metadata key for the SHA-256 of a table's array; pools from other tools lack it."""


def write_pool(pool: Pool, folder: Path) -> None:
    """Write records.npy, records.parquet, public.npy and public.parquet; only this user can read a new folder."""
    private_folder(folder)
    for stem, records in (("public", pool.public), ("records", pool.audited)):
        with atomic_write(folder / f"{stem}.npy") as partial, partial.open("wb") as file:
            _write_array(file, records.data)
        metadata = pool.metadata | {ARRAY: sha256(folder / f"{stem}.npy")}
        write_table(folder / f"{stem}.parquet", _table(records), "records", len(records.labels), metadata)


def _write_array(file: BinaryIO, data: Data) -> None:
    """Write a .npy file chunk by chunk, so that at most one chunk is in memory."""
    header = {"descr": np.lib.format.dtype_to_descr(data.dtype), "fortran_order": False, "shape": data.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for chunk in data.chunks():
        file.write(np.ascontiguousarray(chunk).data)


def _table(records: PoolRecords) -> pa.Table:
    columns = {} if records.persons is None else {"person": pa.array(records.persons)}
    if records.files is not None:
        columns["file"] = pa.array(records.files, pa.string())
    return pa.table(
        {
            "record": pa.array(np.arange(len(records.labels), dtype=np.int32)),
            "label": pa.array(records.labels),
            "sha256": pa.array(records.sha256, pa.string()),
            "flipped": pa.array(records.flipped),
            "source": pa.array(records.source.astype(np.int32)),
            **columns,
        }
    )


@dataclass(frozen=True)
class StoredRecords:
    """Records as stored: memory-mapped data [n, …], labels [n], the pool's metadata, and the ids of persons [n], if known."""

    data: Num[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"]
    metadata: dict[str, Any]
    persons: Shaped[np.ndarray, " n"] | None = None

    @property
    def units(self) -> Shaped[np.ndarray, " n"] | None:
        """The ids of the records' persons if they are the pool's unit; None if the unit is the record."""
        return self.persons if self.metadata.get("unit") == "person" else None


def read_records(folder: Path, stem: str = "records") -> StoredRecords:
    """Open a pool's audited (`records`) or public (`public`) records. Raises UserError, which names the file, if it is invalid or damaged."""
    path = folder / f"{stem}.npy"
    table = read_table(folder / f"{stem}.parquet", "records", ["label"])
    try:
        data = np.load(path, mmap_mode="r" if len(table) else None, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected the pool's records as a NumPy array") from None
    except NOT_NUMPY as error:
        raise UserError(f"{path}: no NumPy array ({first_line(error)}). Delete it and run again") from None
    if data.ndim == 0 or len(data) != len(table):
        raise UserError(
            f"{path}: {len(data) if data.ndim else 'no'} records, but {stem}.parquet beside it has {len(table)}. Delete both and run again"
        )
    metadata = table_metadata(folder / f"{stem}.parquet", "records")
    if (digest := metadata.pop(ARRAY, None)) and digest != sha256(path):
        raise UserError(f"{path}: damaged (it does not match its digest in {stem}.parquet). Delete both and run again")
    stored = StoredRecords(data, table["label"].to_numpy(), metadata, read_persons(folder / f"{stem}.parquet"))
    _check_metadata(stored, folder, stem)
    return stored


def read_persons(path: Path) -> Shaped[np.ndarray, " n"] | None:
    """Return the ids of the persons in a pool's table of records, int64 or text; None if the table has none."""
    if "person" not in open_table(path, "records").schema_arrow.names:
        return None
    column = read_table(path, "records", ["person"])["person"]
    what = f"{path}: column 'person'"
    if column.null_count:
        raise missing_ids(what, column.is_null().to_numpy(), "write the pool with an id for every record")
    values = column.to_numpy()
    return numbered_ids(values.astype(np.str_) if values.dtype.kind == "O" else values, what)


def persons_of(path: Path) -> Persons:
    """Return the persons of a pool's audited records; UserError if they are unknown, or if they also have public records."""
    ids, public = read_persons(path), path.with_name("public.parquet")
    if ids is None:
        raise UserError(f"{path}: no column 'person', which unit: person needs; name persons in datasets.NAME.person")
    check_apart(ids, read_persons(public) if public.exists() else None, str(path), str(public))
    return Persons.numbered(ids)


def _check_metadata(stored: StoredRecords, folder: Path, stem: str) -> None:
    """Raise UserError for a pool, perhaps from another tool, whose array or labels contradict the table's metadata."""
    path, metadata = folder / f"{stem}.parquet", stored.metadata
    if lacking := [name for name in ("kind", "shape", "classes") if name not in metadata]:
        raise UserError(f"{path}: '{lacking[0]}' is missing from the table's metadata; see docs/reference/data.md")
    if list(stored.data.shape[1:]) != metadata["shape"]:
        raise UserError(
            f"{path}: records of shape {metadata['shape']}, but {stem}.npy beside it has {list(stored.data.shape[1:])}."
            " Delete both and run again"
        )
    outside = np.flatnonzero((stored.labels < 0) | (stored.labels >= len(metadata["classes"])))
    if len(outside):
        raise UserError(
            f"{path}: record {outside[0]} has the label {stored.labels[outside[0]]}, but the pool's {len(metadata['classes'])} classes are"
            f" numbered from 0 to {len(metadata['classes']) - 1} ({len(outside)} such labels)"
        )


def write_membership(path: Path, membership: Bool[np.ndarray, "n k"], metadata: dict[str, Any], first: int = 0) -> None:
    """Write a membership matrix: a row per record, and a bool column per model, numbered from `first`."""
    columns: dict[str, pa.Array] = {"record": pa.array(np.arange(len(membership), dtype=np.int32))}
    columns |= {str(shadow): pa.array(column) for shadow, column in enumerate(membership.T, first)}
    write_table(path, pa.table(columns), "membership", len(membership), metadata)


def read_membership(
    path: Path, shadows: Iterable[int] | None = None, records: int | None = None
) -> Bool[np.ndarray, "n k"]:
    """Read the membership of all shadows, or of some; UserError if the number of records is not `records`."""
    names = None if shadows is None else [str(shadow) for shadow in shadows]
    table = read_table(path, "membership", names)
    if records is not None and len(table) != records:
        raise UserError(f"{path}: membership of {len(table)} records; the pool has {records}. Delete it and run again")
    return np.stack([table[name].to_numpy() for name in table.column_names if name != "record"], axis=1)


def draw_membership(section: Membership, records: int, dataset: str, seed: int) -> Bool[np.ndarray, "n k"]:
    """Draw a [records, models] membership matrix; each column depends only on (seed, dataset, shadow).

    `half`: every model trains on its own uniformly random half of the pool (Huang et al. 2024). `bernoulli`: a fair
    coin decides for every record and model (Steinke et al. 2023). `split`: every model trains on its own uniformly
    random share, with at least one record in and one out, like repeated random splits in a study. No design puts every
    record in exactly half of the models, because the other models' members would then reveal the target's. If the unit
    is the person, `records` counts persons.
    """
    return draw_columns(section, records, dataset, seed, range(section.models))


def draw_columns(
    section: Membership | Draw, records: int, dataset: str, seed: int, shadows: Iterable[int]
) -> Bool[np.ndarray, "n k"]:
    """Draw the columns of the membership matrix for these models."""
    design = {"half": _half, "bernoulli": _bernoulli, "split": _split}[section.design]
    columns = [design(records, generator(seed, "membership", dataset, shadow), section) for shadow in shadows]
    return np.stack(columns, axis=1)


def draw_training_sets(
    draw: Draw, table: Path, dataset: str, seed: int, shadows: Iterable[int]
) -> Bool[np.ndarray, "n k"]:
    """Draw models' training sets from the records of a pool's table, [records, models].

    If the unit is the person, one draw decides for all records of a person.
    """
    if draw.unit == "person":
        persons = persons_of(table)
        return persons.spread(draw_columns(draw, len(persons), dataset, seed, shadows))
    return draw_columns(draw, open_table(table, "records").metadata.num_rows, dataset, seed, shadows)


def _half(records: int, random: np.random.Generator, section: Membership | Draw) -> Bool[np.ndarray, " n"]:
    return random.permutation(records) < records // 2


def _bernoulli(records: int, random: np.random.Generator, section: Membership | Draw) -> Bool[np.ndarray, " n"]:
    return random.random(records) < 0.5


def _split(records: int, random: np.random.Generator, section: Membership | Draw) -> Bool[np.ndarray, " n"]:
    inside = min(max(round((section.share or 0) * records), 1), records - 1)
    return random.permutation(records) < inside
