"""Read the unpacked size of a compressed file from its headers, before anything is unpacked."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

from mia_audit.errors import UserError
from mia_audit.host_memory import available_memory

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

NOT_NUMPY = (ValueError, OSError, EOFError, TypeError, KeyError, OverflowError, SyntaxError, TokenError)
"""The exceptions that NumPy raises for files that are not arrays. They vary because NumPy parses the header as Python."""
DEFLATED = 1100
"""The largest number of bytes to which one compressed byte unpacks; for deflate it is about 1,032."""


def check_memory(where: str, needed: int, what: str) -> None:
    """Raise UserError if reading a file needs more memory than available."""
    if needed > (free := available_memory()):
        raise UserError(
            f"{where}: {what} takes {needed / 1e9:,.2g} GB in memory, and {free / 1e9:,.2g} GB are available; use a smaller file,"
            " or a machine with more memory"
        )


def check_parquet(file: pq.ParquetFile, where: str, columns: int | None = None) -> None:
    """Raise UserError if this many columns of a Parquet file (all when left out) do not fit in memory."""
    rows, width = file.metadata.num_rows, file.metadata.num_columns
    stated = sum(file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups))
    columns = width if columns is None else columns
    needed = max(8 * rows * columns, stated * columns // max(width, 1))
    check_memory(where, needed, f"a table of {rows:,} rows and {columns} columns")


LINE_BYTES = 33
"""Memory that polars takes for a line of a CSV file, even for an empty one."""


MANY_LINES = 1_000_000
"""A CSV file of more lines, most of which are empty, is not read."""


def check_csv(path: Path) -> None:
    """Raise UserError if a CSV file does not fit in memory, because polars ends the process for a file that does not fit.

    Empty lines alone would be read for minutes, and are refused if a file has little else.
    """
    lines = pairs = 0
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            lines += part.count(b"\n")
            pairs += part.count(b"\n\n") + part.count(b"\n\r\n")
    if 4 * pairs > lines > MANY_LINES:
        raise UserError(f"{path}: most of its {lines:,} lines are empty: remove them")
    check_memory(str(path), max(path.stat().st_size, LINE_BYTES * lines), f"a table of {lines:,} lines")


def check_workbook(path: Path) -> None:
    """Raise UserError if a workbook does not fit in memory, and BadZipFile if it is none."""
    with zipfile.ZipFile(path) as archive:
        check_memory(str(path), sum(part.file_size for part in archive.infolist()), "a workbook")


def read_foreign(path: Path) -> pl.DataFrame:
    """Read a Parquet file of any origin. Raises UserError if it does not fit in memory; errors of Arrow and polars are passed on.

    Arrow reads and checks the file, because polars' own reader ends the process for a file that does not fit, and
    panics for damaged ones.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    check_parquet(file, str(path))
    table = file.read()
    table.validate(full=True)
    if wide := [field.name for field in table.schema if pa.types.is_decimal256(field.type)]:  # polars panics later
        raise pa.ArrowInvalid(f"column '{wide[0]}' holds decimals of more than 38 digits; write it as numbers or text")
    return pl.DataFrame(pl.from_arrow(without_metadata(table)))


def without_metadata(table: pa.Table) -> pa.Table:
    """Return a table without the metadata of its schema and columns, because polars panics if these contain bytes that are not text."""
    import pyarrow as pa

    return table.cast(pa.schema([field.remove_metadata() for field in table.schema]))


class Npz:
    """The arrays of an .npz file. Shapes and types come from the headers, and each array is read on request. Nothing is unpickled."""

    def __init__(self, path: Path) -> None:
        """Read the headers; raises the errors of zipfile and NumPy, and ValueError for headers that do not match the archive."""
        self.path = path
        self.headers: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    self.headers[info.filename.removesuffix(".npy")] = _header(archive, info)

    def read(self, name: str) -> np.ndarray:
        """Return an array; UserError if it does not fit in memory."""
        import numpy as np

        shape, dtype = self.headers[name]
        check_memory(str(self.path), math.prod(shape) * dtype.itemsize, f"array '{name}' of shape {list(shape)}")
        with np.load(self.path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype]:
    import numpy as np

    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"array '{info.filename}' has a compression that NumPy does not use")
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"array '{info.filename}' has version {version} of NumPy's format")
        shape, _, dtype = read(file)
        size = math.prod(shape) * dtype.itemsize + file.tell()
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if size != info.file_size or info.file_size > DEFLATED * max(info.compress_size, 1):
        raise ValueError(f"the header of array '{info.filename}' states {size:,} bytes, but the file has fewer")
    return tuple(shape), dtype
