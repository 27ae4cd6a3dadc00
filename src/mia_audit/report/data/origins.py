"""The origin of a pool's records in their owner's files: a row of a table, or an image's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

from mia_audit.storage import open_table, read_table

if TYPE_CHECKING:
    from mia_audit.report.data.results import Results


def origins(results: Results, dataset: str) -> Callable[[int], str]:
    """Return a function that names a record by its image file, or by its row and file; empty text if the pool states neither."""
    path = results.root / "pools" / dataset / "records.parquet"
    section = (results.spec.config.get("datasets") or {}).get(dataset) or {}
    if not path.exists():
        return lambda number: ""
    held = open_table(path, "records").schema_arrow.names
    if "file" in held:
        files = read_table(path, "records", ["file"])["file"].to_pylist()
        return lambda number: str(files[number])
    file = PurePath(str(section.get("path") or "")).name
    if "source" not in held or section.get("source") != "table" or not file:
        return lambda number: ""
    rows = read_table(path, "records", ["source"])["source"].to_numpy()
    return lambda number: f"row {rows[number] + 1} of {file}"
