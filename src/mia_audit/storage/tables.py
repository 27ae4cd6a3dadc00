"""Parquet tables: written atomically, checked when written and when read."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mia_audit.errors import UserError, first_line
from mia_audit.foreign_json import parse_object
from mia_audit.storage import digests
from mia_audit.storage.atomic import atomic_write
from mia_audit.storage.contracts import CONTRACTS, check_columns
from mia_audit.storage.unpacked import check_parquet, without_metadata

if TYPE_CHECKING:
    import polars as pl

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
    except (pa.ArrowException, OSError) as error:
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
        raise UserError(
            f"{path}: no column {', '.join(map(repr, missing))}; it has {', '.join(file.schema_arrow.names)}"
        )
    return file


def read_table(path: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet table of the kind, or only `columns` of it; raise a UserError, which names the file, if it is invalid or damaged."""
    file = open_table(path, kind, columns or ())
    check_parquet(file, str(path), len(columns) if columns is not None else None)
    with naming_damage(path, kind):
        return file.read(columns=list(columns) if columns is not None else None)


def read_frame(path: Path, kind: str) -> "pl.DataFrame":
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
    except (pa.ArrowException, OSError) as error:
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
