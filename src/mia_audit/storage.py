"""Tables on disk: Parquet written whole or not at all, checked when written and when read."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from mia_audit import seals
from mia_audit.errors import UserError, first_line

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = "1"
ROW_GROUPS = "row_groups"
"""The fact of a scores table that lists attack, signal, variance and null_control of every row group."""
PARTIAL = ".partial"
"""Ends the names of folders that hold what is being written."""
SWAPS = 10
"""How often a folder is put in the place of another one before the reason why it cannot be is raised."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_SIGNS = ("No space left", "os error 28", "File too large", "os error 27", "Disk quota", " requested and ")
"""How arrow, safetensors and NumPy (`8 requested and 4 written`) say it where they give no number."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and rename it there on success, so that a reader never sees half a file.

    A full disk, and a place that cannot be written to, are UserErrors that name the file. What killed processes left of
    other attempts is cleared away, before and after: a worker that outlived its orchestrator may be the last one to write
    this file.
    """
    with _full_disk_named(path), _reserved(path) as folder:
        partial = folder / path.name
        yield partial
        partial.chmod(0o666 & ~_umask())
        with _place_named(path):
            partial.replace(path)


@contextmanager
def beginning(path: Path) -> Iterator[Path]:
    """Yield a temporary path as `replacing` does, but leave a file alone that somebody else has begun there meanwhile."""
    with _full_disk_named(path), _reserved(path) as folder:
        partial = folder / path.name
        yield partial
        partial.chmod(0o666 & ~_umask())
        with _place_named(path), suppress(FileExistsError):
            path.hardlink_to(partial)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a folder beside `path` that takes its place on success, and is gone otherwise, as `replacing` does for a file."""
    with _full_disk_named(path), _reserved(path) as folder:
        partial = folder / path.name
        partial.mkdir()
        yield partial
        _swap(partial, path)


@contextmanager
def _reserved(path: Path) -> Iterator[Path]:
    """Yield a folder beside `path`, locked, so that it does not count as left over, whatever files a writer makes and moves there."""
    with _place_named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    descriptor = None
    while descriptor is None:
        with _place_named(path):
            folder = Path(tempfile.mkdtemp(PARTIAL, f".{path.name}.", path.parent))
        descriptor = _hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
        _clear(path)


def _hold(folder: Path) -> int | None:
    """Lock what is about to be written for as long as this process lives; None where somebody took it for left over first.

    Where a file system knows no such locks, nothing ever counts as left over.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if folder.exists():
        return descriptor
    os.close(descriptor)
    return None


def _clear(path: Path) -> None:
    """Remove what nobody is writing for `path` any more."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):  # somebody writes it, or has just finished
            descriptor = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
            finally:
                os.close(descriptor)


def _swap(partial: Path, path: Path) -> None:
    """Put a folder in the place of another one, again where somebody else did so in between.

    The other one is moved away whole before it is removed: nobody ever finds a folder that lost some of its files.
    """
    before = partial.with_name(f"{path.name}.before")
    for attempt in count(1):
        with suppress(FileNotFoundError):
            path.rename(before)
        try:
            partial.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == SWAPS:
                raise
        else:
            return
        finally:
            shutil.rmtree(before, ignore_errors=True)


@contextmanager
def _full_disk_named(path: Path) -> Iterator[None]:
    """Turn what libraries raise where a disk is full, or a file reaches a limit, into a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        words = str(error)
        if getattr(error, "errno", None) in FULL or any(sign in words for sign in FULL_SIGNS):
            raise UserError(
                f"{path}: could not be written: {_reason(error)}. Make room and run again; what is finished stays"
            ) from None
        raise


@contextmanager
def _place_named(path: Path) -> Iterator[None]:
    """Turn what the system says of a folder that cannot be made or written to into a UserError that names the file.

    A folder that was there and is gone has been taken away by another process, which is nobody's mistake.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL or (error.errno == errno.ENOENT and not path.parent.exists()):
            raise
        reason = os.strerror(error.errno).lower() if error.errno else error
        raise UserError(f"{path}: cannot be written there: {reason}; choose another place") from None


def _reason(error: Exception) -> str:
    code = getattr(error, "errno", None)
    return os.strerror(code).lower() if code in FULL else "the disk is full, or a limit is reached"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, keys sorted, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_table(
    path: Path,
    tables: pa.Table | Iterator[pa.Table],
    kind: str,
    rows: int,
    facts: dict[str, Any] | None = None,
    **encoding: Any,
) -> None:
    """Write a Parquet table of the given kind (`signals`, `scores` …), one row group per table of the iterator.

    `rows` is the expected row count, checked on write; `facts` are kept in the file's metadata beside the kind and the
    schema's version; `encoding` goes to Parquet's writer. Raises ValueError when the count differs; then nothing has been written.
    """
    parts = iter([tables]) if isinstance(tables, pa.Table) else tables
    first = next(parts)
    metadata = {
        "mia_audit.kind": kind,
        "mia_audit.schema": SCHEMA_VERSION,
        "mia_audit.facts": json.dumps(facts or {}, sort_keys=True),
        seals.KEY: seals.BLANK,
    }
    schema = first.schema.with_metadata(metadata)
    written = 0
    with replacing(path) as partial:
        with pq.ParquetWriter(partial, schema, **{"compression": "zstd", **encoding}) as writer:
            for table in chain([first], parts):
                writer.write_table(table.cast(schema), row_group_size=max(len(table), 1))
                written += len(table)
        if written != rows:
            raise ValueError(f"{path}: {written} rows written where {rows} were expected")
        seals.seal(partial)


def open_table(path: Path, kind: str, columns: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet table, checking its kind and that it has the columns; a wrong or damaged file is a UserError that names it."""
    if not path.exists():
        raise UserError(f"{path}: no such file; expected a {kind} table in Parquet")
    seal = seals.state(path)
    if seal == "damaged":
        raise _damaged(path, "its bytes are not those that were written", kind)
    try:
        file = pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: truncated or not Parquet ({first_line(error)}); expected a {kind} table. Delete it and run again"
        ) from None
    found = (file.schema_arrow.metadata or {}).get(b"mia_audit.kind", b"").decode()
    if found != kind:
        raise UserError(
            f"{path}: a {found or 'foreign'} table where a {kind} table was expected. Delete it and run again"
        )
    if seal == "unsealed":
        raise _damaged(path, "it does not carry its digest", kind)
    missing = [name for name in columns if name not in file.schema_arrow.names]
    if missing:
        raise UserError(
            f"{path}: no column {', '.join(map(repr, missing))}; it has {', '.join(file.schema_arrow.names)}"
        )
    return file


def read_table(path: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet table of the kind (only `columns`, when given) into memory; a wrong or damaged file is a UserError that names it."""
    file = open_table(path, kind, columns or ())
    with naming_damage(path, kind):
        return file.read(columns=list(columns) if columns is not None else None)


def read_frame(path: Path, kind: str) -> "pl.DataFrame":
    """Read a Parquet table of the kind as a data frame, as `read_table` does."""
    import polars as pl

    return pl.DataFrame(pl.from_arrow(read_table(path, kind)))


@contextmanager
def naming_damage(path: Path, kind: str) -> Iterator[None]:
    """Turn what reading pages of a damaged table raises into a UserError that names the file."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, first_line(error), kind) from None


def _damaged(path: Path, why: str, kind: str) -> UserError:
    return UserError(f"{path}: damaged ({why}); expected a {kind} table. Delete it and run again")


def table_facts(path: Path, kind: str) -> dict[str, Any]:
    """Return the facts kept in a table's metadata."""
    facts: dict[str, Any] = json.loads(open_table(path, kind).schema_arrow.metadata[b"mia_audit.facts"])
    return facts
