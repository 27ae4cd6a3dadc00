"""The groups by which results are sliced: the values of a column or bands of them, classes, or a person's number of records.

The records of a pool on which a finished model was trained, as its owner states in a file or a column of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mia_audit.errors import UserError, suggest
from mia_audit.pools.persons import Persons
from mia_audit.pools.store import read_persons
from mia_audit.storage import read_table, table_metadata, write_table

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Bool, Int

    from mia_audit.pools.section import Dataset, Source

CLASS, RECORDS = "class", "records"
"""The names in `groups` that are not columns: the label, and the number of a person's records."""
FEW = 8
"""If a column has at most this many distinct numbers, each number is a group. Otherwise numbers are divided at their quartiles."""
MOST = 50
"""Largest number of groups of a column."""
UNKNOWN = "unknown"
"""The group of records without a value."""
KIND = "groups"
GROUP_COLUMN = "group:"
"""Prefix of the columns of groups.parquet that hold groups."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of a column in order, and the index of every record's (or person's) group."""

    name: str
    labels: tuple[str, ...]
    of: Int[np.ndarray, " n"]

    def of_persons(self, persons: Persons) -> Grouping:
        """Return every person's group: the most frequent group of their records, or the first of several."""
        counts = np.zeros((len(persons), len(self.labels)), dtype=np.int64)
        np.add.at(counts, (persons.of, self.of), 1)
        return Grouping(self.name, self.labels, counts.argmax(axis=1))


def groupings(source: Source, section: Dataset, pool: Path, where: str) -> list[Grouping]:
    """Return the groups of a pool's audited records, by the columns that its section names.

    Raises UserError for a column that the source does not have, that has too many different words, or that has words
    but edges are given.
    """
    import polars as pl

    table = read_table(pool, "records", ["label", "source"])
    labels, rows = table["label"].to_numpy(), table["source"].to_numpy()
    groups = []
    for name, edges in section.edges_of_groups.items():
        if name == CLASS:
            groups.append(_of_classes(labels, source.classes))
            continue
        if name == RECORDS:
            ids = read_persons(pool)
            if ids is None:
                raise UserError(f"{pool}: no column 'person', from which groups: records counts; build the pool again")
            persons = Persons.numbered(ids)
            values = pl.Series(name, persons.spread(persons.records))
        else:
            values = _grouped_column(source, name, where)[rows]
        groups.append(grouping(name, values, edges, f"{where}.groups: '{name}'"))
    return groups


def grouping(name: str, values: pl.Series, edges: Sequence[float], where: str) -> Grouping:
    """Group records by a column: by bands of numbers if there are edges or many numbers, otherwise by value."""
    import polars as pl

    missing = values.is_null()
    if values.dtype.is_float():
        missing |= values.is_nan().fill_null(True)
    known = ~missing.to_numpy()
    if values.dtype.is_numeric():
        labels, of = _of_numbers(values.cast(pl.Float64).to_numpy(), known, edges)
    elif edges:
        raise UserError(f"{where} holds {values.dtype}, which edges cannot divide: leave the edges out")
    else:
        words = values.cast(pl.String)
        labels = words.drop_nulls().unique().sort().to_list()
        places = {word: place for place, word in enumerate(labels)}
        of = np.array([places.get(word, 0) for word in words.to_list()], dtype=np.int64)
    if len(labels) > MOST:
        raise UserError(
            f"{where} has {len(labels)} different values: expected at most {MOST} groups; leave it out, or give a column with"
            " fewer"
        )
    if not known.all():
        of = np.where(known, of, len(labels))
        labels = [*labels, UNKNOWN]
    return Grouping(name, tuple(labels), of)


def _of_classes(labels: np.ndarray, classes: Sequence[str]) -> Grouping:
    return Grouping(CLASS, tuple(classes), labels.astype(np.int64))


def _of_numbers(values: np.ndarray, known: np.ndarray, edges: Sequence[float]) -> tuple[list[str], np.ndarray]:
    """Return one group per value if there are few values and no edges, else bands. A band includes its lower edge."""
    distinct = np.unique(values[known])
    if not edges and len(distinct) <= FEW:
        places = np.where(known, np.searchsorted(distinct, values), 0)
        return [f"{value:g}" for value in distinct], places
    cuts = np.array(edges) if edges else np.unique(np.quantile(values[known], [0.25, 0.5, 0.75], method="higher"))
    inner = [f"[{low:g}, {high:g})" for low, high in pairwise(cuts)]
    bands = np.digitize(np.where(known, values, 0.0), cuts)
    return [f"< {cuts[0]:g}", *inner, f"≥ {cuts[-1]:g}"], bands


def _grouped_column(source: Source, name: str, where: str) -> pl.Series:
    import polars as pl

    from mia_audit.errors import suggest

    if source.columns is not None:
        return source.columns(name)
    if source.kind == "table" and name in source.features:
        place = source.features.index(name)
        return pl.Series(name, np.asarray(source.records)[:, place])
    known = [*source.features, CLASS, *([RECORDS] if source.persons is not None else [])]
    raise UserError(f"{where}.groups: the source has no column '{name}': {suggest(name, known)}")


def write_groups(path: Path, groups: Sequence[Grouping], records: int) -> None:
    """Write groups.parquet: one row per record, and one column per grouping with the index of the record's group. The metadata have the labels."""
    columns = {"record": pa.array(np.arange(records, dtype=np.int32))}
    columns |= {f"{GROUP_COLUMN}{one.name}": pa.array(one.of.astype(np.int32)) for one in groups}
    write_table(path, pa.table(columns), KIND, records, {"labels": {one.name: list(one.labels) for one in groups}})


def read_groups(path: Path) -> list[Grouping]:
    """Return the groupings of a pool's records."""
    table, labels = read_table(path, KIND), table_metadata(path, KIND)["labels"]
    names = [column.removeprefix(GROUP_COLUMN) for column in table.column_names if column.startswith(GROUP_COLUMN)]
    return [Grouping(name, tuple(labels[name]), table[f"{GROUP_COLUMN}{name}"].to_numpy()) for name in names]


MEMBERS_COLUMN = "column:"
"""Prefix of the name of a column that is true for the training records."""

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
        raise UserError(
            f"{where}.members: {path}: no such file; expected ids, one per line, a .npy file, or column:NAME"
        )
    if path.suffix == ".npy":
        return _numbers(_array(path, count, where), count, f"{where}.members: {path}")
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    words = [line for line in lines if line]
    if not identifier:
        if odd := next((word for word in words if not word.isdigit()), None):
            raise UserError(
                f"{where}.members: {path}: '{odd}' is not a row number (counted from 0); for ids from a column of the table, set id: COLUMN"
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


def _members_column(dataset: Dataset, name: str, where: str) -> pl.Series:
    from mia_audit.pools.sources.files import read_frame

    if dataset.source != "table":
        raise UserError(
            f"{where}: column '{name}': only tables in a file have columns; give row numbers, counted from 0"
        )
    root, frame = read_frame(dataset, where)
    if name not in frame.columns:
        raise UserError(f"{where}: {root} has no column '{name}': {suggest(name, frame.columns)}")
    return frame[name]


def _truth(column: pl.Series, where: str) -> np.ndarray:
    """Return a column of truth values, or of 0 and 1, as truth values."""
    values = column.to_list()
    if odd := [value for value in values if value not in (0, 1)]:
        raise UserError(f"{where}: column '{column.name}' holds '{odd[0]}'; expected true and false, or 1 and 0")
    return np.array(values, dtype=bool)
