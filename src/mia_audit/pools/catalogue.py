"""The registry of pool sources, and the type that a source returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from mia_audit.errors import UserError
from mia_audit.pools.section import Dataset
from mia_audit.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from jaxtyping import Int, Num, Shaped

    Load = Callable[[Dataset, str], "Source"]


class BadRecordError(Exception):
    """A record that cannot be read. The message names the record and the reason."""


class Rows(Protocol):
    """Records in the order of their source: an array [n, …], or images that are decoded on access."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, C, H, W] or [n, d]."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Num[np.ndarray, ...]:
        """Return one record. Several threads call this at a time. Raises BadRecordError for a record that cannot be read."""


@dataclass(frozen=True)
class Source:
    """A data set as loaded: uint8 [n, C, H, W] images or float32 [n, d] rows, int labels [n], and names."""

    kind: Literal["image", "table"]
    records: Rows
    labels: Int[np.ndarray, " n"]
    classes: list[str]
    features: list[str]
    flags: frozenset[str] = frozenset()
    """Features that are always 0 or 1, because they encode a category or a truth value."""
    persons: Shaped[np.ndarray, " n"] | None = None
    """The id of every record's person, int64 or text, if the section names persons."""
    columns: Callable[[str], pl.Series] | None = None
    """Returns a column by name, with a value for every record.

    The column need not be a feature; an unknown name raises UserError. If None, only the columns in `features` are
    known, and only for rows of a table.
    """
    files: Sequence[str] | None = None
    """The file of every record, if each has its own, relative to the section's path."""


@dataclass(frozen=True)
class Header:
    """The facts about a data set that are known before its records are read. Unknown parts are empty or None."""

    kind: Literal["image", "table", ""] = ""
    records: int | None = None
    """An upper limit on the number of records, including duplicates."""
    columns: tuple[str, ...] = ()
    """Columns of a table in a file, including those of label and persons."""


@dataclass(frozen=True)
class PoolSource:
    """The description of a data set's source: how it is loaded, its keys in the section, and the facts known before reading.

    `load` takes the section and its name for errors (`datasets.NAME`); it raises UserError for invalid files. `header`
    is the header of all data sets of the source, or a function that reads the beginning of the section's file.
    """

    load: Load
    keys: tuple[str, ...] = ()
    header: Header | Callable[[Dataset], Header] = Header()

    def known(self, section: Dataset) -> Header:
        """Return the facts that are known before records are read. The header is empty if the file is missing or unreadable."""
        if isinstance(self.header, Header):
            return self.header
        try:
            return self.header(section)
        except Exception:  # the source's own error for a damaged file is more precise
            return Header()


pools: Registry[PoolSource] = Registry("source", "mia_audit.pools.sources", "_", eager=True)
"""Sources by name. All files are imported, because that is cheap and one file may register several sources."""

TABLE_KEYS = ("standardise", "constants")
"""Keys of a dataset's section for pools of rows."""
OPTIONAL_KEYS = ("path", "download", "size", "convert", "white", "label", "person", "columns", "impute", *TABLE_KEYS)
"""Keys of a dataset's section that only some pools read."""


def pool(name: str = "", *keys: str, header: Header | Callable[[Dataset], Header] = Header()) -> Callable[[Load], Load]:
    """Register the decorated function as a source that reads the given optional keys of its section; see `PoolSource`."""

    def decorate(load: Load) -> Load:
        pools.register(name, load)(PoolSource(load, keys, header))
        return load

    return decorate


def check_keys(section: Dataset, where: str) -> None:
    """Raise UserError for a key of a section that its source does not read."""
    member = pools[section.source]
    for key in OPTIONAL_KEYS:
        if key not in member.keys and getattr(section, key) != Dataset.model_fields[key].get_default(
            call_default_factory=True
        ):
            raise UserError(
                f"{where}.{key}: pool '{section.source}' does not read this key; it reads {', '.join(member.keys) or 'no optional keys'}"
            )


def root_of(dataset: Dataset, where: str, must_exist: bool = True) -> Path:
    """Return the section's root; UserError if there is none."""
    if not dataset.path:
        raise UserError(f"{where}.path: missing; state where the files of pool '{dataset.source}' are")
    root = Path(dataset.path)
    if root.exists() and not (root.is_dir() or root.is_file()):
        raise UserError(f"{where}.path: {root}: neither a folder nor a regular file")
    if must_exist and not root.exists():
        raise UserError(
            f"{where}.path: {root}: no such file or folder; state where the files of pool '{dataset.source}' are"
        )
    return root
