"""The persons of records: the unit of privacy if persons have several records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError, first_line, suggest

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Int, Shaped

    Ids = Shaped[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Persons:
    """The persons of n records: the ids of P persons in the order of their first records, and the number of every record's person."""

    ids: Shaped[np.ndarray, " P"]
    of: Int[np.ndarray, " n"]

    @classmethod
    def numbered(cls, ids: Ids) -> Persons:
        """Number the persons in a column of ids in the order of their first records."""
        known, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers = np.empty(len(known), dtype=np.int64)
        numbers[order] = np.arange(len(known))
        return cls(known[order], numbers[inverse.reshape(-1)])

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def records(self) -> Int[np.ndarray, " P"]:
        """The number of records of every person."""
        counts: np.ndarray = np.bincount(self.of, minlength=len(self))
        return counts

    @cached_property
    def first(self) -> Int[np.ndarray, " P"]:
        """The index of every person's first record."""
        first: np.ndarray = np.unique(self.of, return_index=True)[1]
        return first

    def spread(self, values: Shaped[np.ndarray, "P ..."]) -> Shaped[np.ndarray, "n ..."]:
        """Return for every record the value of its person."""
        records: np.ndarray = values[self.of]
        return records

    def gathered(self, values: Shaped[np.ndarray, "n ..."], where: str) -> Shaped[np.ndarray, "P ..."]:
        """Return for every person the common value of their records; UserError if the records of a person differ."""
        common: np.ndarray = values[self.first]
        odd: np.ndarray
        if (odd := (common[self.of] != values).reshape(len(values), -1).any(axis=1)).any():
            person = self.ids[self.of[int(np.argmax(odd))]]
            raise UserError(
                f"{where}: some records of person {person} are members of a model and others are not: expected all or none"
            )
        return common


MISSING = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null")
"""Words for missing values."""
NOBODY = (*MISSING, "None", "none", "<NA>", "NaT")
"""Words for a missing id.

They would make one person of many, whose clipped mean one of these many changes by up to twice the clipping norm.
"""


CONTROL = r"[\x00-\x08\x0e-\x1f\x7f-\x9f]"
"""Characters that no id may have: NumPy drops some of them from the end of a text, which would make one person of two."""


def numbered_ids(values: np.ndarray, what: str) -> Ids:
    """Return ids as int64 or text without the blanks around it.

    Raises UserError for anything else, such as fractions, for `NOBODY`, and for control characters.
    """
    if values.ndim == 1 and values.dtype.kind in "iu":
        return values.astype(np.int64)
    if values.ndim == 1 and values.dtype.kind == "U":
        if odd := next((one for one in np.unique(values) if re.search(CONTROL, one)), None):
            raise _control(what, odd)
        values = np.char.strip(values)
        if (missing := np.isin(values, NOBODY)).any():
            raise missing_ids(what, missing, "every record needs a person")
        return values
    shape = "" if values.ndim == 1 else f" and shape {list(values.shape)}"
    raise UserError(f"{what} holds {values.dtype}{shape}: expected an id per record, whole numbers or text")


def read_ids(path: Path, records: int) -> Ids:
    """Read the person of every record from a .npy array, or from a text file with one id per line."""
    try:
        values = (
            np.load(path, allow_pickle=False)
            if path.suffix == ".npy"
            else np.array(path.read_text(encoding="utf-8").splitlines(), dtype=np.str_)
        )
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"--person {path}: cannot be read: {' '.join(str(error).split())}") from None
    ids = numbered_ids(values, f"--person {path}")
    if len(ids) != records:
        raise UserError(f"--person {path}: {len(ids)} ids for {records} records: expected one each")
    return ids


def _control(what: str, odd: str) -> UserError:
    return UserError(f"{what} holds an id with a control character, {odd!r}: expected printable characters")


def missing_ids(what: str, missing: Sequence[bool] | np.ndarray, remedy: str) -> UserError:
    """Return the error for records whose person is unknown."""
    rows = np.flatnonzero(missing)
    return UserError(
        f"{what} has no id for {len(rows)} of {len(missing)} records (first in row {rows[0] + 1}): {remedy}"
    )


PLACE = "{person}"
"""Placeholder for the id in a pattern of file names."""


def ids_of_files(named: str, names: Sequence[str], inside: Sequence[str], where: str) -> Ids:
    """Return the ids of images' persons, from a CSV file with the columns `file` and `person` or from a pattern of file names.

    `names` are the files' paths relative to the data set's folder, `inside` those relative to the folder of their
    class. Raises UserError if an image has no id.
    """
    return _ids_of_csv(named, names, where) if named.lower().endswith(".csv") else _ids_of_pattern(named, inside, where)


def _ids_of_pattern(pattern: str, names: Sequence[str], where: str) -> Ids:
    if pattern.count(PLACE) != 1:
        raise UserError(
            f"{where}.person: '{pattern}' is neither a .csv file nor a pattern of file names with {PLACE} in it, such as '{PLACE}_*.png'"
        )
    words = {PLACE: "(?P<person>.+?)", "*": ".*"}
    parts = re.split(r"(\{person\}|\*)", pattern)
    matches = [re.fullmatch("".join(words.get(part) or re.escape(part) for part in parts), name) for name in names]
    odd = [name for name, match in zip(names, matches, strict=True) if match is None]
    if odd:
        raise UserError(
            f"{where}.person: {len(odd)} of {len(names)} file names do not match '{pattern}', such as {odd[0]}: every record needs a"
            " person; change the pattern, or name the persons in a .csv file"
        )
    return np.array([match["person"] for match in matches if match])


def _ids_of_csv(path: str, names: Sequence[str], where: str) -> Ids:
    frame, rows = _rows_of_files(path, names, f"{where}.person: {path}")
    ids = ids_of_column(frame["person"], f"{where}.person: {path}: column 'person'")
    return np.array(ids[rows].tolist())


def column_of_files(path: str, names: Sequence[str], where: str, column: str) -> pl.Series:
    """Return a further column of the CSV file that names the persons of images, in the images' order.

    Raises UserError if there is no such file or column.
    """
    if not path.lower().endswith(".csv"):
        raise UserError(
            f"{where}.groups: '{column}': images have further columns only in a CSV file that `person` names; expected one with"
            f" the columns file, person and {column}"
        )
    frame, rows = _rows_of_files(path, names, f"{where}.person: {path}")
    if column not in frame.columns:
        raise UserError(f"{where}.groups: {path} has no column '{column}': {suggest(column, frame.columns)}")
    return frame[column][rows]


def _rows_of_files(path: str, names: Sequence[str], what: str) -> tuple[pl.DataFrame, list[int]]:
    """Return a CSV file with the columns `file` and `person`, and every image's row in it."""
    import polars as pl

    from mia_audit.storage.unpacked import check_csv

    try:
        check_csv(Path(path))
        texts = {"file": pl.String, "person": pl.String}
        frame = pl.read_csv(path, infer_schema_length=None, glob=False, schema_overrides=texts)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = "no such file" if not Path(path).exists() else first_line(error)
        raise UserError(f"{what}: not readable as a table: {reason}; expected the columns file and person") from None
    for column in ("file", "person"):
        if column not in frame.columns:
            raise UserError(f"{what} has no column '{column}': {suggest(column, frame.columns)}")
    known = {name: row for row, name in enumerate(frame["file"].to_list())}
    if len(known) < len(frame):
        raise UserError(f"{what}: a file is listed twice; expected every image once")
    if lacking := [name for name in names if name not in known]:
        raise UserError(
            f"{what}: no person for {len(lacking)} of {len(names)} images, such as {lacking[0]}: list every image below the data"
            " set's path, as folder/name"
        )
    return frame, [known[name] for name in names]


WHOLE = r"^(0|-?[1-9]\d{0,17})$"
"""An id that is a whole number in its only spelling: of 7, 07 and +7 only the first, so that they are three persons."""


def ids_of_column(column: Any, what: str) -> Ids:
    """Return the ids in a column of a polars data frame. Raises UserError for a missing id, and for fractions.

    Ids are equal if their texts are, whatever the other ids of the column.
    """
    import polars as pl

    if column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.UInt64):
        column = column.cast(pl.String).str.strip_chars()  # blanks make no other person
        if (odd := column.str.contains(CONTROL)).any():
            raise _control(what, column.filter(odd)[0])
    missing = column.is_null()
    if column.dtype == pl.String:
        missing |= column.is_in(NOBODY).fill_null(True)
    if column.dtype.is_float():
        missing |= column.is_nan().fill_null(True)
    if missing.any():
        raise missing_ids(
            what,
            missing.to_numpy(),
            "every record needs a person; fill in the ids, give a record of an unknown person its own id, or leave it out",
        )
    if column.dtype == pl.String and not column.str.contains(WHOLE).all():
        if column.str.contains(r"\.").any() and column.cast(pl.Float64, strict=False).is_not_null().all():
            raise UserError(f"{what} holds fractions: expected ids as whole numbers or text")
        return np.array(column.to_list(), dtype=np.str_)
    if column.dtype != pl.String and not column.dtype.is_integer():
        raise UserError(f"{what} holds {column.dtype}: expected ids as whole numbers or text")
    ids: np.ndarray = column.cast(pl.Int64).to_numpy()
    return ids


def check_apart(audited: Ids | None, public: Ids | None, audited_file: str, public_file: str) -> None:
    """Raise UserError if audited and public records have a common person: an id with the same text."""
    if audited is None or public is None or not len(public) or not len(audited):
        return
    if len(both := np.intersect1d(audited.astype(np.str_), public.astype(np.str_))):
        raise UserError(
            f"{public_file}: {len(both)} persons also have audited records, such as {both[0]}: public records must not belong to"
            " audited persons; move all records of a person to one side"
        )
