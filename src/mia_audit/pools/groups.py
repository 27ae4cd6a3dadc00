"""The groups by which results are sliced: the values of a column or bands of them, classes, or a person's number of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mia_audit.errors import UserError
from mia_audit.pools.persons import Persons
from mia_audit.pools.store import read_persons
from mia_audit.storage import read_table, table_metadata, write_table

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Int

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
            groups.append(Grouping(CLASS, tuple(source.classes), labels.astype(np.int64)))
            continue
        if name == RECORDS:
            ids = read_persons(pool)
            if ids is None:
                raise UserError(f"{pool}: no column 'person', from which groups: records counts; build the pool again")
            persons = Persons.numbered(ids)
            values = pl.Series(name, persons.spread(persons.records))
        else:
            values = grouped_column(source, name, where)[rows]
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


def grouped_column(source: Source, name: str, where: str) -> pl.Series:
    """Return a column of a source by which records are grouped; UserError for an unknown one."""
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
