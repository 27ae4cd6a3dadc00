"""A table in Parquet or CSV: a row per record, a column per feature, and one column with the class.

NumPy arrays: `records` and `labels` in an .npz file, or as records.npy and labels.npy in a folder.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from mia_audit.errors import UserError, first_line, suggest
from mia_audit.pools.frames import coded
from mia_audit.pools.persons import ids_of_column, numbered_ids
from mia_audit.pools.scaling import as_listed, category, described, stated_category
from mia_audit.pools.section import FILE_KEYS, TABLE_KEYS, Header, Source, pool, root_of
from mia_audit.pools.tables import (
    check_complete,
    check_distinct,
    check_nines,
    check_spelling,
    check_words,
    read_frame,
    separator_and_names,
)
from mia_audit.storage.unpacked import Npz

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.pools.section import Dataset

CHUNK = 1 << 20
"""Number of bytes read at once to count lines."""
COUNTED = 1 << 30
"""Largest size in bytes of a file whose lines are counted."""
MANY = 20
"""With this many rows per class or more, a class of a single row is probably none."""


def table_header(dataset: Dataset) -> Header:
    """Return the names of the columns, and an upper bound on the number of rows: the lines of a .csv file below its header."""
    root = Path(dataset.path)
    if not root.is_file() or root.suffix.lower() not in (".csv", ".parquet"):
        return Header("table")
    if root.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        file = pq.ParquetFile(root)
        return Header("table", file.metadata.num_rows, tuple(file.schema_arrow.names))
    _, names = separator_and_names(root)
    if root.stat().st_size > COUNTED:
        return Header("table", None, tuple(names))
    lines, last = 0, b"\n"
    with root.open("rb") as file:
        while block := file.read(CHUNK):
            lines, last = lines + block.count(b"\n"), block[-1:]
    rows = lines - (last == b"\n")
    return Header("table", rows if rows > 0 else None, tuple(names))


@pool("table", "path", *FILE_KEYS, *TABLE_KEYS, header=table_header)
def table(dataset: Dataset, where: str) -> Source:
    """Return float32 [n, d]. Numbers are unchanged; a column of text becomes one column of 0 and 1 per value."""
    import polars as pl

    root, frame = read_frame(dataset, where)
    if dataset.label not in frame.columns:
        raise UserError(
            f"{where}.label: {root} has no column '{dataset.label}': {suggest(dataset.label, frame.columns)}"
        )
    persons = _table_persons(frame, dataset, str(root), where) if dataset.person else None
    columns_of = partial(_table_column, frame, str(root), where)
    frame = described(frame, dataset, str(root), where)
    frame = frame.drop([dataset.person] if dataset.person else [])
    check_complete(frame.select(dataset.label) if dataset.frame else frame, dataset.label, str(root), where)
    labels = frame[dataset.label]
    if dataset.classes:
        text = labels.cast(pl.String)
        listed = as_listed(text, dataset.classes, f"{where}.classes")
        labels = listed.zip_with(listed.is_not_null(), text)
    if labels.dtype.is_float():
        raise UserError(f"{where}.label: column '{dataset.label}' of {root} holds fractions; expected classes")
    classes = labels.unique().sort()
    if labels.dtype == pl.String and not dataset.classes:
        check_spelling(classes.to_list(), f"{where}.label: {root}: column '{dataset.label}'", "list all in classes")
    if not dataset.classes and len(labels) >= MANY * len(classes) and labels.is_unique().any():
        row = int(labels.is_unique().arg_max() or 0)
        raise UserError(
            f"{where}.label: {root}: column '{dataset.label}' holds '{labels[row]}' in row {row + 1} alone, as a row of totals or a slip does:"
            " correct it, or list all in classes"
        )
    numbers = labels.cast(pl.String).replace_strict(classes.cast(pl.String), np.arange(len(classes)))
    features = [frame[name] for name in frame.columns if name != dataset.label]
    if dataset.frame:
        features = [_filled(column, str(root), where) for column in features]
    parts = {column.name: _columns(column, dataset, str(root), where) for column in features}
    columns = [part for one in parts.values() for part in one]
    if not columns:
        raise UserError(f"{where}.path: {root} has no column except '{dataset.label}'")
    flags = frozenset(column.name for column in columns if column.dtype == pl.Boolean)
    collected = {
        name: [part.name.removeprefix(f"{name}=") for part in one]
        for name, one in parts.items()
        if name not in dataset.categories and one[0].name != name
    }
    if dataset.frame:
        about, stored = zip(*(coded(frame[name], one) for name, one in parts.items()), strict=True)
        return Source(
            *("table", np.stack(stored, axis=1), numbers.to_numpy(), classes.cast(pl.String).to_list()),
            *([*parts], frozenset[str](), persons, columns_of),
            collected=collected,
            frame=about,
        )
    values = np.stack([_numbers(column, str(root), where) for column in columns], axis=1)
    check_distinct(frame, np.column_stack([values, numbers]), str(root), where)
    return Source(
        *("table", values, numbers.to_numpy(), classes.cast(pl.String).to_list()),
        *([column.name for column in columns], flags, persons, columns_of),
        collected=collected,
    )


def _table_persons(frame: pl.DataFrame, dataset: Dataset, root: str, where: str) -> np.ndarray:
    name = dataset.person
    if name not in frame.columns or name == dataset.label:
        others = [column for column in frame.columns if column != dataset.label]
        raise UserError(f"{where}.person: {root} has no column '{name}' beside the label: {suggest(name, others)}")
    return ids_of_column(frame[name], f"{where}.person: column '{name}' of {root}")


def _table_column(frame: pl.DataFrame, root: str, where: str, name: str) -> pl.Series:
    """Return a column of the file, which need not be a feature."""
    if name not in frame.columns:
        raise UserError(f"{where}.groups: {root} has no column '{name}': {suggest(name, frame.columns)}")
    return frame[name]


def _filled(column: pl.Series, root: str, where: str) -> pl.Series:
    """Return a column with its first value in the place of missing ones; UserError if all are missing, or if one is infinite."""
    known = column.drop_nulls()
    if not len(known):
        raise UserError(f"{where}.path: {root}: column '{column.name}' is empty: drop it (columns: drop)")
    if column.dtype.is_float() and column.is_infinite().any():
        row = int(column.is_infinite().fill_null(False).arg_max() or 0) + 1
        raise UserError(
            f"{where}.path: {root}: column '{column.name}' holds {column[row - 1]} in row {row}; expected finite numbers"
        )
    return column.fill_null(known[0])


def _columns(column: pl.Series, dataset: Dataset, root: str, where: str) -> list[pl.Series]:
    import polars as pl

    if stated := dataset.categories.get(column.name):
        return stated_category(column, stated, dataset.other, root, where)
    if dataset.columns.get(column.name) == "category":
        return category(column, root, where)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        if dataset.columns.get(column.name) != "feature":
            check_nines(column, root, where)
        return [column]
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise UserError(
            f"{where}.path: column '{column.name}' of {root} holds {column.dtype}: expected numbers, true and false, or text;"
            f" convert it, or drop it: columns: {{{column.name}: drop}}"
        )
    text = column.cast(pl.String)
    what = f"{where}.path: {root}: column '{column.name}'"
    if dataset.columns.get(column.name) == "feature":
        number = text.cast(pl.Float64, strict=False)
        if number.is_null().any():
            row = int(number.is_null().arg_max() or 0)
            raise UserError(
                f"{what} holds {text[row]!r} in row {row + 1}; a feature holds numbers: convert it, or say that it holds words"
                f" (columns: {{{column.name}: category}})"
            )
        return [number]
    check_words(text, root, where)
    check_spelling(text.unique().sort().to_list(), what, f"list all in categories.{column.name}")
    return category(text, root, where)


def _numbers(column: pl.Series, root: str, where: str) -> Float[np.ndarray, " n"]:
    import polars as pl

    with np.errstate(over="ignore"):
        values = column.cast(pl.Float64).to_numpy().astype(np.float32)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise UserError(
            f"{where}.path: {root}: {column[row]} in column '{column.name}' (row {row + 1}) is too large for a number of 32 bits:"
            " give the column in a larger unit"
        )
    return np.asarray(values)


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
    persons = _array_persons(root, dataset.person, len(records), where) if dataset.person else None
    columns = partial(_array_column, root, records, where)
    if records.ndim == 2:
        features = [str(column) for column in range(records.shape[1])]
        flags = frozenset(features if records.dtype.kind == "b" else ())
        return Source(
            kind="table",
            records=_rows(records, root, where),
            labels=numbers,
            classes=classes,
            features=features,
            flags=flags,
            persons=persons,
            columns=columns,
        )
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


def _array_persons(root: Path, name: str, records: int, where: str) -> np.ndarray:
    ids = numbered_ids(_array(root, name, f"{where}.person ({name})"), f"{where}.person: {root}: array '{name}'")
    if len(ids) != records:
        raise UserError(
            f"{where}.person: {root}: array '{name}' has {len(ids)} ids for {records} records: expected one per record"
        )
    return ids


def _array_column(root: Path, records: np.ndarray, where: str, name: str) -> pl.Series:
    """Return an array stored next to `records` by its name, or a column of the records by its number."""
    import polars as pl

    own = name.isdecimal() and records.ndim == 2 and int(name) < records.shape[1]
    values = records[:, int(name)] if own else _array(root, name, f"{where}.groups ({name})")
    if values.shape != (len(records),) or values.dtype.kind not in "iufbU":
        raise UserError(
            f"{where}.groups: {root}: array '{name}' of type {values.dtype} and shape {list(values.shape)}: expected a number or a"
            f" word for each of {len(records)} records"
        )
    return pl.Series(name, values.astype(np.float64) if values.dtype.kind == "f" else values)


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
