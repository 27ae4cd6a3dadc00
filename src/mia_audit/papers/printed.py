"""What a paper prints, cell by cell, and how its tables and figures are laid out."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Key:
    """The key of a number; `epsilon` is `inf` without privacy, `explainer` and `attack` are empty if they do not apply."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    explainer: str
    attack: str
    metric: str


@dataclass(frozen=True)
class Printed:
    """A printed number: mean, standard deviation and number of models, None if the paper prints none."""

    table: str
    where: str
    models: int
    key: Key
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Panel:
    """A panel of ROC curves: its title, its attack, and the key of each curve by label."""

    title: str
    attack: str
    curves: Mapping[str, tuple[str, str, str, str, str]]
    """Data set, architecture, mechanism, ε and explainer of every curve."""
    config: str = ""
    """The config that trains them, if it differs from the data set's."""
    others: Sequence[int] = ()
    """Numbers of shadow models: every curve is drawn once for each of them, with the same targets."""
    models: int = 0
    """The paper's number of models, if an audit's settings may have more."""


@dataclass(frozen=True)
class Paper:
    """A paper: its citation, its tables and figures, and the configs that train the models for each data set's cells."""

    citation: str
    tables: Mapping[str, str]
    """Titles of tables."""
    figures: Mapping[str, Sequence[Panel]]
    configs: Mapping[str, str]
    elsewhere: Mapping[str, str]
    """Tables and figures of the paper that are not written here, with where they are or why there are none."""
    studies: bool = False
    """Whether tables are written from finished studies of private explanations instead of audits of models."""
    tests: str = ""
    """The table that prints tests of one attack against another."""


def printed_rows(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of one of the files of printed numbers, as text by column."""
    text = files("mia_audit.papers").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def printed_cells(name: str) -> list[Printed]:
    """Return the printed numbers of a paper, in the order of its tables."""
    return [
        Printed(
            row["table"],
            row["where"],
            int(row["models"]),
            Key(**{part: row[part] for part in Key.__dataclass_fields__}),
            float(row["mean"]) if row["mean"] else None,
            float(row["sd"]) if row["sd"] else None,
        )
        for row in printed_rows(name)
    ]
