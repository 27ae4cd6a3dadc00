"""Inspect data and a training script for a first config: columns, classes, identifiers, functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError, suggest
from mia_audit.pools.columns import FEW
from mia_audit.pools.section import Dataset

if TYPE_CHECKING:
    import polars as pl

LABELS = ("label", "class", "target", "y", "outcome", "income", "diagnosis")
"""Usual names of the class column, in order of preference."""

CLASSES = 100
"""Largest number of classes of a class column."""


@dataclass(frozen=True)
class Looked:
    """The result of an inspection: the data set's section, its number of records, their shape, and the classes."""

    section: dict[str, object]
    records: int
    shape: tuple[int, ...]
    classes: int
    units: int = 0
    """Number of records, or of persons if the table names them."""


def columns_of(path: Path) -> pl.DataFrame:
    """Read a table of records; UserError for a file that is not a table."""
    from mia_audit.pools.sources.table import read_frame

    return read_frame(Dataset(source="table", path=str(path)), "init")[1]


def label_of(frame: pl.DataFrame, given: str) -> str:
    """Return the class column: the given one, or one with a usual name; UserError if there is none."""
    if given:
        if given not in frame.columns:
            raise UserError(f"--label: no column '{given}': {suggest(given, frame.columns)}")
        return given
    usual = [name for wanted in LABELS for name in frame.columns if name.lower() == wanted]
    if not usual:
        few = [
            name for name in frame.columns if 2 <= frame[name].n_unique() <= FEW and not frame[name].dtype.is_float()
        ]
        hint = f"; these have few values: {', '.join(few)}" if few else ""
        raise UserError(
            f"--label: none of the columns is called {', '.join(LABELS)}; name the column of the class{hint}"
        )
    return usual[0]


def look_at_table(
    path: Path, frame: pl.DataFrame, label: str, columns: Mapping[str, str], more: Mapping[str, object]
) -> Looked:
    """Describe a table of records. `more` has further keys of its section. Raises UserError if no pool can be built from the table."""
    classes = frame[label].n_unique()
    if classes > CLASSES:
        raise UserError(
            f"--label: column '{label}' has {classes} different values; name the column that holds the class"
        )
    section: dict[str, object] = {"source": "table", "path": str(path), "label": label}
    if columns:
        section["columns"] = dict(columns)
    section |= more
    from mia_audit.pools import pools

    source = pools["table"].load(Dataset(**section), "init")  # type: ignore[arg-type]
    units = len(frame) if source.persons is None else len(set(source.persons.tolist()))
    return Looked(section, len(frame), tuple(source.records.shape[1:]), classes, units)


def look_at_folder(path: Path) -> Looked:
    """Describe a folder of images with a subfolder per class, or one with records.npy and labels.npy. Raises UserError for anything else."""
    import numpy as np

    if (path / "records.npy").is_file():
        shape = np.load(path / "records.npy", mmap_mode="r").shape
        if not (path / "labels.npy").is_file():
            raise UserError(f"{path}: has records.npy, but no labels.npy beside it")
        labels = np.load(path / "labels.npy", allow_pickle=False)
        return Looked({"source": "arrays", "path": str(path)}, shape[0], tuple(shape[1:]), len(np.unique(labels)))
    from mia_audit.pools import pools

    if any(path.glob("*-idx3-ubyte*")):
        source = pools["idx"].load(Dataset(source="idx", path=str(path)), "init")
        shape = tuple(source.records.shape[1:])
        return Looked({"source": "idx", "path": str(path)}, len(source.records), shape, len(source.classes))
    dataset = Dataset(source="images", path=str(path))
    section: dict[str, object] = {"source": "images", "path": str(path)}
    try:
        source = pools["images"].load(dataset, "init")
    except UserError as error:
        if "size" not in str(error):
            raise
        section["size"] = SIDE  # the sizes of images vary
        source = pools["images"].load(dataset.model_copy(update={"size": SIDE}), "init")
    return Looked(section, len(source.records), tuple(source.records.shape[1:]), len(source.classes))


SIDE = 32
"""The default side in pixels for images of different sizes."""
