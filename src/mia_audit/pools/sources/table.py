"""A table in Parquet or CSV: a row a record, a column a feature, and one column that holds the class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError, first_line, suggest
from mia_audit.pools.catalogue import TABLE_KEYS, Source, pool
from mia_audit.pools.torchvision_sets import root_of

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.config.schema import Dataset


@pool("table", "root", "label", *TABLE_KEYS)
def table(dataset: Dataset, where: str) -> Source:
    """Return float32 [n, d]: numbers as they are, a column of text as one column of 0 and 1 for each of its values."""
    import polars as pl

    root = root_of(dataset, where)
    readers = {".csv": lambda: pl.read_csv(root, infer_schema_length=None), ".parquet": lambda: pl.read_parquet(root)}
    if root.suffix.lower() not in readers:
        raise UserError(f"{where}.root: {root}: expected a file that ends in {' or '.join(readers)}")
    try:
        frame = readers[root.suffix.lower()]()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{where}.root: {root}: not readable as a table: {first_line(error)}") from None
    if dataset.label not in frame.columns:
        raise UserError(
            f"{where}.label: {root} has no column '{dataset.label}': {suggest(dataset.label, frame.columns)}"
        )
    _check_complete(frame, str(root), where)
    labels = frame[dataset.label]
    if labels.dtype.is_float():
        raise UserError(f"{where}.label: column '{dataset.label}' of {root} holds fractions; expected classes")
    classes = labels.unique().sort()
    numbers = labels.cast(pl.String).replace_strict(classes.cast(pl.String), np.arange(len(classes)))
    columns = [
        part for name in frame.columns if name != dataset.label for part in _columns(frame[name], str(root), where)
    ]
    if not columns:
        raise UserError(f"{where}.root: {root} has no column beside '{dataset.label}'")
    values = np.stack([column.to_numpy().astype(np.float32) for column in columns], axis=1)
    flags = frozenset(column.name for column in columns if column.dtype == pl.Boolean)
    names = [column.name for column in columns]
    return Source("table", values, numbers.to_numpy(), classes.cast(pl.String).to_list(), names, flags)


def _columns(column: pl.Series, root: str, where: str) -> list[pl.Series]:
    import polars as pl

    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return [column]
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise UserError(
            f"{where}.root: column '{column.name}' of {root} holds {column.dtype}: expected numbers, true and false, or text;"
            " convert it, or leave it out"
        )
    text = column.cast(pl.String)
    return [(text == value).alias(f"{column.name}={value}") for value in text.unique().sort()]


def _check_complete(frame: pl.DataFrame, root: str, where: str) -> None:
    """Refuse missing values and numbers that are not finite, naming every column and its first such row."""
    problems = []
    for column in frame:
        missing = column.is_null()
        if column.dtype.is_float():
            missing |= ~column.is_finite().fill_null(True)
        if missing.any():
            row = int(missing.arg_max() or 0) + 1
            problems.append(f"'{column.name}' (row {row} first, {missing.sum()} in all)")
    if problems:
        raise UserError(
            f"{where}.root: {root}: values are missing or not finite in column {', '.join(problems)}; rows count from 1 below the"
            " header. Fill them in, or take those rows away"
        )
