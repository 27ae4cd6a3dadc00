"""Parquet tables: written atomically, checked when written and when read.

Columns of Parquet files, read batch by batch, because a setting's whole column would be larger than anything else in memory.

The columns and types that a table from another tool must have to be read like an audit's own table.

Diverged models, which an audit leaves out: every table from training to metrics lists them in its metadata.

Stamps: a small file for every job that trained or explained shadow models. The workflow waits for this file.

Every result belongs to a shadow model and is named after it; jobs only group the models, and may group them differently
when models are added. A stamp is named after its first and last model, in a hidden folder beside the results of its
job, and holds the key of every model: the digest of everything that the model's result depends on. No model is in two
stamps, so an existing stamp always describes existing results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mia_audit.errors import UserError, few, first_line, suggest
from mia_audit.foreign_json import parse_object
from mia_audit.storage import digests
from mia_audit.storage.atomic import atomic_write, write_json
from mia_audit.storage.unpacked import check_parquet, without_metadata

if TYPE_CHECKING:
    import polars as pl
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


def column_of(values: np.ndarray) -> pa.Array:
    """Return values as a column: a list of fixed size per row for a matrix."""
    flat = pa.array(values.ravel())
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def rows_of_lists(file: pq.ParquetFile, name: str, where: str) -> Iterator[np.ndarray]:
    """Yield the rows of a column of lists of fixed size in parts; raises UserError if a cell is empty."""
    size = file.schema_arrow.field(name).type.list_size
    for batch in file.iter_batches(BATCH_ROWS // size + 1, columns=[name]):
        values = batch.column(0)
        if values.null_count:
            raise UserError(f"{where}: column '{name}' has {values.null_count} empty cells; expected a value in each")
        yield values.flatten().to_numpy(zero_copy_only=False).reshape(-1, size)


def encoding_of(schema: pa.Schema) -> dict[str, Any]:
    """Return the writer's options for a table of signals: no dictionaries of vectors, whose numbers hardly repeat."""
    plain = [field.name for field in schema if not pa.types.is_fixed_size_list(field.type)]
    return {"use_dictionary": plain} if len(plain) < len(schema) else {}


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


Test = tuple[str, Callable[[pa.DataType], bool]]


def _text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


TEXT: Test = ("text", _text)
WHOLE: Test = ("whole numbers", lambda kind: bool(pa.types.is_integer(kind)))
NUMBER: Test = ("numbers", _number)
TRUTH: Test = ("true or false, or 0 and 1", lambda kind: bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind)))

_ATTACK = dict.fromkeys(("attack", "signal", "likelihood"), TEXT) | {"null_control": TRUTH, "target": WHOLE}

CONTRACTS: dict[str, dict[str, Test]] = {
    "signals": {"shadow": WHOLE, "record": WHOLE, "member": TRUTH},
    "scores": _ATTACK | {"record": WHOLE, "member": TRUTH, "score": NUMBER},
    "metrics": _ATTACK | {"members": WHOLE, "non_members": WHOLE, "auc": NUMBER},
}
"""Required columns by kind of table, for the kinds that may come from other tools (docs/reference/data.md)."""

ID: Test = ("whole numbers or text", lambda kind: _text(kind) or bool(pa.types.is_integer(kind)))

OPTIONAL: dict[str, dict[str, Test]] = {
    "signals": {"person": ID},
    "scores": {"person": ID, "unit": TEXT, "aggregate": TEXT},
}
"""Optional columns by kind of table."""

OTHERS = {"signals": NUMBER}
"""Types of all other columns, for the kinds of table in which they matter."""


def check_columns(path: Path, schema: pa.Schema, kind: str) -> None:
    """Raise a UserError that names the first column of a table that is missing or has the wrong type for its kind."""
    contract = CONTRACTS[kind]
    for name, (words, holds) in contract.items():
        if name not in schema.names:
            raise UserError(f"{path}: no column '{name}' ({words}) for a {kind} table: {suggest(name, schema.names)}")
        if not holds(schema.field(name).type):
            raise UserError(f"{path}: column '{name}' holds {schema.field(name).type}; expected {words}")
    words, holds = OTHERS.get(kind, ("", lambda _: True))
    optional = OPTIONAL.get(kind, {})
    for field in schema:
        if field.name in optional and not optional[field.name][1](field.type):
            raise UserError(f"{path}: column '{field.name}' holds {field.type}; expected {optional[field.name][0]}")
        if field.name not in contract | optional and not holds(field.type):
            raise UserError(f"{path}: column '{field.name}' holds {field.type}; expected {words}, or leave it out")


SCHEMA_VERSION = "1"
REMEDY = "If an audit wrote it, delete it and run again; otherwise provide an intact copy"
BUFFER = 1 << 20
"""Number of bytes of a column that are read at a time."""
ROW_GROUPS = "row_groups"
"""The metadata key of a scores table that lists attack, signal, likelihood, null_control, unit and aggregate of every row group."""
MOST_ROWS = 1 << 26
"""Largest number of rows in a row group; Arrow's writer splits longer ones."""


def write_table(
    path: Path,
    tables: pa.Table | Iterator[pa.Table],
    kind: str,
    rows: int,
    metadata: dict[str, Any] | None = None,
    **encoding: Any,
) -> None:
    """Write a Parquet table of the given kind (`signals`, `scores` …), with one row group per table of the iterator, or `row_groups_of` the table.

    `metadata` is stored in the file with the kind and the schema's version; `encoding` is passed to Parquet's writer.
    Raises ValueError, and writes nothing, if the number of rows is not `rows`.
    """
    parts = iter([tables]) if isinstance(tables, pa.Table) else tables
    table = next(parts)
    header = {
        "mia_audit.kind": kind,
        "mia_audit.schema": SCHEMA_VERSION,
        "mia_audit.metadata": json.dumps(metadata or {}, sort_keys=True),
        digests.KEY: digests.BLANK,
    }
    schema = table.schema.with_metadata(header)
    written = 0
    with atomic_write(path) as partial:
        with pq.ParquetWriter(partial, schema, **{"compression": "zstd", **encoding}) as writer:
            while table is not None:
                writer.write_table(table.cast(schema), row_group_size=min(max(len(table), 1), MOST_ROWS))
                written += len(table)
                del table  # free this table before the next one is computed
                table = next(parts, None)
        if written != rows:
            raise ValueError(f"{path}: {written} rows were written, but {rows} were expected")
        digests.embed_digest(partial)


def row_groups_of(rows: int) -> int:
    """Return how many row groups hold a table of this many rows."""
    return max(1, -(-rows // MOST_ROWS))


def open_table(path: Path, kind: str, columns: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet table and check its digest, kind and columns; raise a UserError, which names the file, if it is invalid or damaged.

    A table without an audit's metadata is accepted if tables of this kind may come from other tools, and if it has the
    required columns.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file; expected a {kind} table in Parquet")
    if path.is_dir():
        raise UserError(f"{path}: a folder; expected a {kind} table in Parquet, such as {path / kind}.parquet")
    state = digests.state(path)
    if state == "damaged":
        raise _damaged(path, "its bytes do not match its digest", kind, CHANGED if kind in CONTRACTS else "")
    try:
        # A memory map's pages would stay resident, and so would all column chunks that are read ahead of their use.
        file = pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)
        _ = file.schema_arrow.names  # text in a damaged footer is decoded here
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: truncated or not Parquet ({first_line(error)}); expected a {kind} table. {REMEDY}"
        ) from None
    stored = (file.schema_arrow.metadata or {}).get(b"mia_audit.kind", b"").decode(errors="replace")
    if stored and stored != kind:
        raise UserError(f"{path}: a {stored} table where a {kind} table was expected")
    if state == "absent":
        if kind not in CONTRACTS:
            reason = "it does not contain its digest" if stored else "it does not state its kind"
            raise UserError(f"{path}: not written by an audit ({reason}); only an audit writes {kind} tables")
        check_columns(path, file.schema_arrow, kind)
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise UserError(f"{path}: no column {few(map(repr, missing))}; it has {few(file.schema_arrow.names)}")
    return file


def read_table(path: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet table of the kind, or only `columns` of it; raise a UserError, which names the file, if it is invalid or damaged."""
    file = open_table(path, kind, columns or ())
    check_parquet(file, str(path), len(columns) if columns is not None else None)
    with naming_damage(path, kind):
        return file.read(columns=list(columns) if columns is not None else None)


def read_frame(path: Path, kind: str) -> pl.DataFrame:
    """Read a Parquet table of the kind as a data frame, as `read_table` does."""
    import polars as pl

    table = read_table(path, kind)
    with naming_damage(path, kind):
        table.validate(full=True)  # polars assumes that text is valid
    return pl.DataFrame(pl.from_arrow(without_metadata(table)))


@contextmanager
def naming_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn errors from reading a damaged table's pages into a UserError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, first_line(error), kind) from None


CHANGED = "; if you changed it with another tool, write it without the metadata 'mia_audit.sha256'"


def _damaged(path: Path, reason: str, kind: str, further: str = "") -> UserError:
    return UserError(f"{path}: damaged ({reason}); expected a {kind} table. {REMEDY}{further}")


def table_metadata(path: Path, kind: str) -> dict[str, Any]:
    """Return the metadata of a table; empty for a table from another tool without any."""
    stored = open_table(path, kind).schema_arrow.metadata or {}
    try:
        return parse_object(stored.get(b"mia_audit.metadata", b"{}"))
    except ValueError as error:
        raise _damaged(path, f"metadata: {error}", kind) from None


def given_digest(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a table that no audit wrote, by file name. It is empty for an audit's own tables, which contain their digest."""
    return {path.name: digests.sha256(path)} if digests.state(path) == "absent" else {}


DIVERGED = "diverged"


def diverged_metadata(models: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata for diverged models: the reason for each, by number. They are empty if no model diverged."""
    return {DIVERGED: dict(models)} if models else {}


def diverged_models(path: Path, kind: str) -> dict[int, str]:
    """Return the reason for each diverged model that a table lacks, by number."""
    listed = table_metadata(path, kind).get(DIVERGED, {})
    if not isinstance(listed, dict) or not all(
        number.isascii() and number.isdigit() and len(number) < 10 and isinstance(reason, str)
        for number, reason in listed.items()
    ):
        raise UserError(f"{path}: metadata '{DIVERGED}': expected the reason for each diverged model, by its number")
    return {int(number): reason for number, reason in listed.items()}


def diverged_of_all(paths: Iterable[Path], kind: str) -> dict[str, Any]:
    """Return the metadata for a table merged from others; the result lists every model that one of these tables lacks."""
    every = (diverged_models(path, kind).items() for path in paths)
    return diverged_metadata({str(number): reason for models in every for number, reason in models})


STAMPS = ".jobs"
"""The folder of stamps, beside the results that they describe."""
RETRAIN = "mia-audit run CONFIG -- --forcerun train"
"""The command that trains missing models again, after an audit has ended too."""


def parse_range(text: str, where: str) -> range:
    """Read the numbers of a job's models, first-last; UserError for anything else."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UserError(f"{where}: '{text}'; expected the numbers of the first and the last model, such as 0-8")
    return range(int(first), int(last) + 1)


def clear_stamps(folder: Path, shadows: range) -> None:
    """Remove every stamp in this folder that includes one of the models. Call it before the models' results are written."""
    for path in folder.glob("*-*"):
        if re.fullmatch(r"\d+-\d+", path.name):
            stamped = parse_range(path.name, str(path))
            if stamped.start < shadows.stop and shadows.start < stamped.stop:
                path.unlink(missing_ok=True)


def write_stamp(path: Path, keys: Mapping[int, str]) -> None:
    """Write the stamp of a job that has finished these models, given their keys."""
    write_json(path, {str(shadow): key for shadow, key in keys.items()})
