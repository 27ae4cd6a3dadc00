"""The records of a pool on which a finished model was trained, as its owner states in a file or a column of the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError, first_line, suggest
from mia_audit.pools.persons import Persons

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Bool, Int

    from mia_audit.pools.section import Dataset


MEMBERS_COLUMN = "column:"
"""Prefix of the name of a column that is true for the training records."""

ROW = re.compile("[0-9]{1,18}")
"""A row number that fits into 64 bits."""

SHOWN = 3
"""Number of ids that a message names."""


def named_members(
    dataset: Dataset, members: str, identifier: str, rows: Int[np.ndarray, " n"], count: int, where: str
) -> Bool[np.ndarray, " n"]:
    """Return a mask of the pool's records on which the model was trained.

    `rows` are the records' rows in their source, which has `count` rows. `members` is `column:NAME` of a table, or a
    file: .npy with row numbers from 0 or with one truth value per row, or a text with one id per line. Ids are row
    numbers from 0, or values of the table's column `identifier`. Raises UserError, which begins with `where`, for ids
    that the source does not have, and if all or none of the pool's records are training records.
    """
    inside = np.zeros(count, dtype=bool)
    inside[_rows(dataset, members, identifier, count, where)] = True
    chosen: np.ndarray = inside[rows]
    if not 0 < chosen.sum() < len(chosen):
        raise UserError(
            f"{where}.members: {members}: {'all' if chosen.any() else 'none'} of the pool's {len(chosen)} records are training"
            " records; an audit needs both members and non-members"
        )
    return chosen


def check_persons(member: Bool[np.ndarray, " n"], persons: Persons, where: str) -> None:
    """Raise UserError if a model was trained on only some of a person's records, because the person is then neither in nor out."""
    inside = np.bincount(persons.of, weights=member, minlength=len(persons))
    if (split := (inside > 0) & (inside < persons.records)).any():
        first = int(np.argmax(split))
        raise UserError(
            f"{where}: only some records of person {persons.ids[first]} are training records ({inside[first]:.0f} of {persons.records[first]};"
            f" {split.sum()} such persons in all): expected all of a person's records or none; add the others, or audit rows (datasets.*.unit:"
            " record)"
        )


def _rows(dataset: Dataset, members: str, identifier: str, count: int, where: str) -> np.ndarray:
    if members.startswith(MEMBERS_COLUMN):
        return np.flatnonzero(
            _truth(_members_column(dataset, members.removeprefix(MEMBERS_COLUMN), where), f"{where}.members")
        )
    path = Path(members)
    if not path.is_file():
        raise UserError(f"{where}.members: {path}: no such file; expected ids, one a line, a .npy file or column:NAME")
    if path.suffix == ".npy":
        return _numbers(_array(path, count, where), count, f"{where}.members: {path}")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"{where}.members: {path}: not text in UTF-8 ({first_line(error)}); save it as UTF-8") from None
    words = [line for line in lines if line]
    if not identifier:
        if odd := next((word for word in words if not ROW.fullmatch(word)), None):
            raise UserError(
                f"{where}.members: {path}: '{odd[:80]}' is not a row number (counted from 0); for ids from a column of the table, set id: COLUMN"
            )
        return _numbers(np.array(words, dtype=np.int64), count, f"{where}.members: {path}")
    import polars as pl

    ids = _members_column(dataset, identifier, where).cast(pl.String)
    if unknown := sorted(set(words) - set(ids.to_list())):
        raise UserError(
            f"{where}.members: {path}: column '{identifier}' has no {', '.join(unknown[:SHOWN])} ({len(unknown)} such ids in all)"
        )
    return np.flatnonzero(ids.is_in(words).to_numpy())


def _array(path: Path, count: int, where: str) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{where}.members: {path}: not a NumPy array ({error})") from None
    if values.dtype == bool and values.shape == (count,):
        return np.flatnonzero(values)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise UserError(
            f"{where}.members: {path}: {values.dtype} of shape {list(values.shape)}; expected row numbers, or {count} truth values"
        )
    return values


def _numbers(rows: np.ndarray, count: int, where: str) -> np.ndarray:
    wrong = rows[(rows < 0) | (rows >= count)]
    if len(wrong):
        raise UserError(f"{where}: row {wrong[0]}, but the data set has the rows 0 to {count - 1}")
    return rows


def _truth(column: pl.Series, where: str) -> np.ndarray:
    """Return a column of truth values, or of 0 and 1, as truth values."""
    values = column.to_list()
    if odd := [value for value in values if value not in (0, 1)]:
        raise UserError(f"{where}: column '{column.name}' holds '{odd[0]}'; expected true and false, or 1 and 0")
    return np.array(values, dtype=bool)


def _members_column(dataset: Dataset, name: str, where: str) -> pl.Series:
    from mia_audit.pools.tables import read_frame

    if dataset.source != "table":
        raise UserError(f"{where}: column '{name}': only tables in a file have columns; give row numbers from 0")
    root, frame = read_frame(dataset, where)
    if name not in frame.columns:
        raise UserError(f"{where}: {root} has no column '{name}': {suggest(name, frame.columns)}")
    return frame[name]
