"""NumPy arrays: `records` and `labels` in an .npz file, or as records.npy and labels.npy in a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mia_audit.errors import UserError, first_line
from mia_audit.pools.catalogue import TABLE_KEYS, Header, Source, pool, root_of
from mia_audit.pools.persons import missing_ids, numbered_ids
from mia_audit.storage.unpacked import Npz

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.pools.section import Dataset

EXPECTED = (
    "expected images as uint8 [n, H, W], [n, C, H, W] or [n, H, W, C] with 1 or 3 channels, or rows as numbers [n, d]"
)


def array_header(dataset: Dataset) -> Header:
    """Return the kind and number of records, from the header of the array of records."""
    root = Path(dataset.path)
    if not (root / "records.npy" if root.is_dir() else root).is_file():
        return Header()
    shape = np.load(root / "records.npy", mmap_mode="r").shape if root.is_dir() else Npz(root).headers["records"][0]
    return Header("table" if len(shape) == 2 else "image", shape[0])


@pool("arrays", "path", "person", *TABLE_KEYS, header=array_header)
def arrays(dataset: Dataset, where: str) -> Source:
    """Return images (uint8) or rows (converted to float32). Labels are whole numbers from 0, or names."""
    root = root_of(dataset, where)
    records, labels = (_array(root, name, where) for name in ("records", "labels"))
    if labels.ndim != 1 or records.ndim == 0 or len(labels) != len(records):
        raise UserError(
            f"{where}.path: {root}: labels of shape {list(labels.shape)} do not match records of shape {list(records.shape)}:"
            " expected one label per record"
        )
    if labels.dtype.kind in "iu":
        numbers = labels.astype(np.int64)
        last = int(numbers.max(initial=-1))
        if last >= len(numbers):
            raise UserError(
                f"{where}.path: {root}: record {numbers.argmax()} has the label {last}, but there are {len(numbers)} records: expected"
                " classes numbered from 0 without gaps, or text"
            )
        classes = [str(number) for number in range(last + 1)]
    elif labels.dtype.kind == "U":
        names, numbers = np.unique(labels, return_inverse=True)
        classes = names.tolist()
    else:
        raise UserError(f"{where}.path: {root}: labels of type {labels.dtype}: expected whole numbers from 0, or text")
    persons = _persons(root, dataset.person, len(records), where) if dataset.person else None
    columns = partial(_column, root, records, where)
    if records.ndim == 2:
        features = [str(column) for column in range(records.shape[1])]
        flags = frozenset(features if records.dtype.kind == "b" else ())
        return Source("table", _rows(records, root, where), numbers, classes, features, flags, persons, columns)
    return Source(
        "image", _channels_first(records, root, where), numbers, classes, [], persons=persons, columns=columns
    )


def _array(root: Path, name: str, where: str) -> np.ndarray:
    """Read one array. An array in a folder is memory-mapped. Pickled objects are never loaded."""
    path = root / f"{name}.npy" if root.is_dir() else root
    try:
        if path.exists() and not path.is_file():
            raise ValueError("not a regular file")
        if root.is_dir():
            return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
        return Npz(path).read(name)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise exceptions of various types for damaged files
        why = "no such file" if isinstance(error, FileNotFoundError) else first_line(error)
        raise UserError(
            f"{where}.path: {path}: no readable array '{name}' ({why}): expected an .npz file with records and labels,"
            " or a folder with records.npy and labels.npy"
        ) from None


def _persons(root: Path, name: str, records: int, where: str) -> np.ndarray:
    ids = numbered_ids(_array(root, name, f"{where}.person ({name})"), f"{where}.person: {root}: array '{name}'")
    if len(ids) != records:
        raise UserError(
            f"{where}.person: {root}: array '{name}' has {len(ids)} ids for {records} records: expected one per record"
        )
    if ids.dtype.kind == "U" and (missing := ids == "").any():
        raise missing_ids(f"{where}.person: {root}: array '{name}'", missing, "every record needs a person")
    return ids


def _column(root: Path, records: np.ndarray, where: str, name: str) -> pl.Series:
    """Return an array stored next to `records` by its name, or a column of the records by its number."""
    import polars as pl

    if name.isdecimal() and records.ndim == 2 and int(name) < records.shape[1]:
        return pl.Series(name, records[:, int(name)])
    values = _array(root, name, f"{where}.groups ({name})")
    if values.shape != (len(records),) or values.dtype.kind not in "iufbU":
        raise UserError(
            f"{where}.groups: {root}: array '{name}' of type {values.dtype} and shape {list(values.shape)}: expected a number or a"
            f" word for each of {len(records)} records"
        )
    return pl.Series(name, values)


def _rows(records: np.ndarray, root: Path, where: str) -> Float[np.ndarray, "n d"]:
    if records.shape[1] == 0 or records.dtype.kind not in "iufb":
        raise UserError(
            f"{where}.path: {root}: records of type {records.dtype} and shape {list(records.shape)}: {EXPECTED}"
        )
    with np.errstate(over="ignore"):
        rows = records.astype(np.float32)
    if not np.isfinite(rows).all():
        raise UserError(f"{where}.path: {root}: records hold values that are not finite numbers of 32 bits; {EXPECTED}")
    return rows


def _channels_first(records: np.ndarray, root: Path, where: str) -> np.ndarray:
    if records.dtype == np.uint8 and records.ndim == 3 and records[:1].size:
        return records[:, None]
    if records.dtype == np.uint8 and records.ndim == 4 and records[:1].size:
        first, last = (records.shape[axis] in (1, 3) for axis in (1, 3))
        if first != last:
            return records if first else records.transpose(0, 3, 1, 2)
    raise UserError(
        f"{where}.path: {root}: records of type {records.dtype} and shape {list(records.shape)}: {EXPECTED}"
    )
