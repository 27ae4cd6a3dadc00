"""Centre and scale a table's columns by constants that do not depend on the audited records.

The columns of a table: their roles in the config, and detection of undeclared columns that look like identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from mia_audit.errors import UserError, few, suggest
from mia_audit.pools.section import Dataset, Source

if TYPE_CHECKING:
    import polars as pl

Table = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Scaling:
    """(x − centre) / scale, with constants per column [d]."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    def apply(self, records: Table) -> Table:
        """Return float32 [n, d]."""
        return np.asarray((records - self.centre) / self.scale, dtype=np.float32)

    def metadata(self) -> dict[str, Any]:
        """Return the entries of this scaling in the pool's metadata."""
        return {"centre": self.centre.tolist(), "scale": self.scale.tolist()}


Constants = Callable[[Callable[[], Table]], Scaling | None]
"""Returns the constants, given a function that reads the public records, for a config that was checked."""


def _none(source: Source, section: Dataset, where: str) -> Constants:
    return lambda public: None


def _public(source: Source, section: Dataset, where: str) -> Constants:
    """Standardise by mean and standard deviation of the public records; a constant column is only centred."""

    def constants(public: Callable[[], Table]) -> Scaling:
        records = public()
        scale = records.std(axis=0, dtype=np.float64)
        scale[scale == 0] = 1.0
        return Scaling(records.mean(axis=0, dtype=np.float64), scale)

    return constants


def _stated(source: Source, section: Dataset, where: str) -> Constants:
    """Standardise by the constants that the config states for every column of numbers; columns of 0 and 1 without
    stated constants are not changed.
    """
    constants = dict(section.constants)
    lacking = [name for name in source.features if name not in constants and name not in source.flags]
    pairs = np.array([constants.pop(name, (0.0, 1.0)) for name in source.features], dtype=np.float64)
    if constants:
        odd = next(iter(constants))
        raise UserError(f"{where}.constants.{odd}: no such column: {suggest(odd, source.features)}")
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise UserError(
            f"{where}.constants: nothing for column '{lacking[0]}'{more}: state [centre, scale] for every column of numbers, [0, 1]"
            " to leave one unchanged"
        )
    return lambda public: Scaling(pairs[:, 0], pairs[:, 1])


STANDARDISATIONS: dict[str, Callable[[Source, Dataset, str], Constants]] = {
    "none": _none,
    "public": _public,
    "stated": _stated,
}
"""The values of `standardise`, each a function of the source, its section, and the section's name for errors."""

IDENTIFIER = re.compile(
    r"(?i)(^|[_\W])(id|ids|uuid|guid|ssn|name|surname|email|e-mail|phone|address|zip|zipcode|postcode|iban|mrn|patient|index|row)($|[_\W])"
    r"|(?-i:[a-z]I[Dd])$|^unnamed"
)
"""Column names that suggest an id of persons or rows."""

PADDED = r"^0\d+$"
"""Whole numbers that begin with 0, such as codes."""
MARKED = r"^\s*[-+−]?\s*([$€£]?\s*\d[\d.,' ]*([eE][-+]?\d+)?\s*[%‰$€£]?|0[xX][0-9a-fA-F]+)\s*$"
"""Numbers with marks that no number has in a file: of thousands, currencies, shares and base 16, and a minus of print."""
YEAR_10000 = 253_402_300_800
"""Seconds from 1970; later times have no text."""
SECONDS = r"(:\d\d)(?:\.0+|(\.\d*[1-9])0+)([+-]\d\d:\d\d)?$"
"""Seconds with zeros at the end, whose number is that of the finest time in the column."""
DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?$"
MOSTLY = 0.9
"""A column of text holds dates if at least this share of its values are dates."""
MEASURED = r"\d[.,]\d{1,2}\D*$"
"""Numbers with fractions, such as those of a laboratory beside marks: < 0.5."""
FEW = 20
"""A column with at most this many distinct values, or rows, is assumed to identify nobody."""
NEARLY = 0.9
"""A column is assumed to identify rows if at least this share of its values are distinct."""
MANY_WORDS = 50
"""A column of text with more distinct values must be declared as a category."""
MANY_NUMBERS, SHARE = 1000, 0.1
"""A column of whole numbers is assumed to hold ids if its distinct values exceed both this number and this share of rows."""
LONG = 5
"""Whole numbers that all have the same number of digits, this many or more, are assumed to be ids (of customers, patients, places)."""
MOST_CATEGORIES = 1000
"""Largest number of values of a category; each value becomes a column."""


def described(frame: pl.DataFrame, dataset: Dataset, root: str, where: str) -> pl.DataFrame:
    """Return the columns for models, with the label: dropped columns are removed, and missing values filled in.

    Raises UserError for columns that the table does not have, for bytes, durations and lists, and for columns that look like
    identifiers and have no stated role.
    """
    import polars as pl

    for key in ("columns", "impute", "categories"):
        for name in getattr(dataset, key):
            if name not in frame.columns:
                raise UserError(f"{where}.{key}: {root} has no column '{name}': {suggest(name, frame.columns)}")
            if name in (dataset.label, dataset.person):
                held = "holds the class" if name == dataset.label else "names the person of every record"
                raise UserError(f"{where}.{key}.{name}: the column {held} and is never a feature; leave it out here")
    dropped = {name for name, what in dataset.columns.items() if what == "drop"}
    for key in ("impute", "categories"):
        if twice := sorted(dropped & set(getattr(dataset, key))):
            raise UserError(f"{where}.{key}.{twice[0]}: the column is dropped; leave it out here")
    declared = {dataset.label, dataset.person, *dataset.columns, *dataset.categories}
    if odd := identifiers(frame, declared):
        raise UserError(f"{where}.columns: {root}: {_identifier_words(odd)}")
    kept = frame.drop(dropped - {""})
    for column in kept:
        if column.dtype in (pl.Binary, pl.Duration) or column.dtype.is_nested():
            raise UserError(
                f"{where}.path: column '{column.name}' of {root} holds {column.dtype}: expected numbers, true and false, or text;"
                " convert it" + f", or drop it: columns: {{{column.name}: drop}}" * (column.name != dataset.label)
            )
    return _imputed(kept, dataset, where)


def identifiers(frame: pl.DataFrame, declared: Collection[str]) -> dict[str, str]:
    """Return the columns of whole numbers or text that seem to identify records or people, each with the reason.

    The columns in `declared`, whose role the config states, are not checked.
    """
    looks = ((name, _looks(frame[name])) for name in frame.columns if name not in declared)
    return {name: why for name, why in looks if why}


def no_words(text: pl.Series) -> tuple[str, str] | None:
    """Say what a column of text holds that is no word (dates, or numbers beside words or with marks), and how to correct it."""
    import polars as pl

    known = text.drop_nulls()
    if text.dtype != pl.String or not len(known):
        return None
    if known.str.contains(DATE).sum() >= MOSTLY * len(known):
        return f"dates, such as '{known[0]}', each of which would be a column", "write it as a number of days"
    plain = known.cast(pl.Float64, strict=False).is_not_null()
    odd = ~(plain | known.str.contains(MARKED))
    if odd.all() or plain.all():
        return None
    if odd.any():
        row = int((text == known[int(odd.arg_max() or 0)]).arg_max() or 0)
        return f"numbers except for '{text[row]}' (first in row {row + 1}, {odd.sum()} in all)", "correct them"
    return (
        f"numbers with other marks, such as '{known.filter(~plain)[0]}'",
        "write them with a decimal point and no other mark",
    )


def _looks(column: pl.Series) -> str:
    import polars as pl

    words = column.dtype in (pl.String, pl.Categorical, pl.Enum)
    if column.dtype == pl.String and column.drop_nulls().str.contains(PADDED).any():
        return "numbers with leading zeros"
    if not (words or column.dtype.is_integer()) or len(column) <= FEW:
        return ""
    distinct = column.n_unique()
    if distinct <= FEW or _measured(column):
        return ""
    if distinct >= NEARLY * len(column):
        return f"a different value in {'every row' if distinct == len(column) else f'{distinct} of {len(column)} rows'}"
    if IDENTIFIER.search(column.name):
        return f"its name, and {distinct} different values"
    if not words and _digits(column) >= LONG:
        return f"{distinct} different numbers of {_digits(column)} digits each"
    if words and distinct >= len(column) / 2:
        return f"{distinct} different words in {len(column)} rows"
    if words and distinct > MANY_WORDS:
        return f"{distinct} different words"
    if not words and distinct > max(MANY_NUMBERS, SHARE * len(column)):
        return f"{distinct} different whole numbers in {len(column)} rows"
    return ""


def _measured(text: pl.Series) -> bool:
    """Return whether half of a column's values are dates or fractions, which identify nobody and are no words either."""
    return no_words(text) is not None and 2 * text.str.contains(f"{DATE}|{MEASURED}").sum() >= text.count()


def _digits(column: pl.Series) -> int:
    """Return the number of digits of a column's whole numbers; 0 if the numbers differ in length, or one of them is not positive."""
    low, high = column.min(), column.max()
    if not isinstance(low, int) or not isinstance(high, int) or low <= 0:
        return 0
    return len(str(low)) if len(str(low)) == len(str(high)) else 0


def _identifier_words(odd: Mapping[str, str]) -> str:
    listed = few(f"'{name}' ({why})" for name, why in odd.items())
    first = next(iter(odd))
    looks = "looks like an identifier" if len(odd) == 1 else "look like identifiers"
    return (
        f"column{'s' * (len(odd) > 1)} {listed} {looks}: declare each one, such as person: {first}, or columns:"
        f" {{{first}: drop}} (no model gets it), {{{first}: category}} (one column per value) or {{{first}: feature}} (used as it is)"
    )


def category(column: pl.Series, root: str, where: str) -> list[pl.Series]:
    """Return a column of 0 and 1 for each value, in the order of the values."""
    import polars as pl

    values = column.unique().sort()
    if len(values) > MOST_CATEGORIES:
        raise UserError(
            f"{where}.columns.{column.name}: {len(values)} different values in {root}, each of which would be a column; expected at most"
            f" {MOST_CATEGORIES}: drop it, or group its values"
        )
    names = values.cast(pl.String).to_list()
    return [(column == value).alias(f"{column.name}={name}") for value, name in zip(values, names, strict=True)]


LATE = "a time beyond the year 9999"
"""Takes the place of times that have no text."""


def _as_text(column: pl.Series) -> pl.Series:
    """Return values as text; times beyond the year 9999, for which polars panics, are `LATE`."""
    import polars as pl

    kind = column.dtype
    if kind == pl.Date:
        limit = YEAR_10000 // 86400
    elif isinstance(kind, pl.Datetime) and kind.time_unit != "ns":
        limit = YEAR_10000 * {"ms": 10**3, "us": 10**6}[kind.time_unit]
    else:
        return column.cast(pl.String)
    late = (~column.to_physical().is_between(-limit, limit)).fill_null(False)
    return column.set(late, None).cast(pl.String).set(late, LATE)


def stated_category(column: pl.Series, values: Sequence[str], other: str, root: str, where: str) -> list[pl.Series]:
    """Return a column of 0 and 1 for each stated value, and one for all others if they have a name; UserError if they have none."""
    text = _as_text(column)
    given = as_listed(text, values, f"{where}.categories.{column.name}")
    odd = given.is_null()
    if odd.any() and not other:
        row = int(odd.arg_max() or 0)
        raise UserError(
            f"{where}.categories.{column.name}: '{text[row]}' (row {row + 1} of {root}, {odd.sum()} such rows) is not listed: list it, or"
            f" name the value that replaces all others: {where}.other"
        )
    parts = {name: given.eq_missing(name) for name in values}
    if other:
        parts[other] = parts[other] | odd if other in parts else odd
    return [part.alias(f"{column.name}={name}") for name, part in parts.items()]


def as_listed(text: pl.Series, values: Sequence[str], what: str) -> pl.Series:
    """Return for every value the equal one of a list, or null; UserError if values of the list are the same."""
    import polars as pl

    listed = pl.Series(values)
    if (again := spelled(listed).is_duplicated()).any():
        raise UserError(f"{what}: {few(listed.filter(again))} are the same value: list it once")
    return spelled(text).replace_strict(spelled(listed), listed, default=None)


def spelled(text: pl.Series) -> pl.Series:
    """Return every value in the spelling that equal ones share: 1 for 1.0, -1 for -01, true for True; 01 stays a code.

    Each is read by itself. The type of a whole column, and so the text of its values, depends on every record.
    """
    import polars as pl

    time = pl.col("").str.strip_chars().str.replace(SECONDS, "$1$2$3")
    word = time.str.replace(r"[T ]00:00:00$", "")  # a date in a workbook or in Parquet
    number = word.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    whole = number.cast(pl.Int64, strict=False)
    as_it_is = word.str.contains(r"^(\d+|-[1-9]\d*)$") | number.is_null() | ~number.is_finite()
    truth = word.str.to_lowercase().is_in(["true", "false"])
    alike = pl.when(number == whole).then(whole.cast(pl.String)).otherwise(number.cast(pl.String))
    one = pl.when(truth).then(word.str.to_lowercase()).when(as_it_is).then(word).otherwise(alike)
    return text.alias("").to_frame().select(one.alias("")).to_series()


def _imputed(frame: pl.DataFrame, dataset: Dataset, where: str) -> pl.DataFrame:
    """Replace missing values by the stated constants; a stated category takes numbers and words, whatever the column holds."""
    import polars as pl

    filled = []
    for name, constant in dataset.impute.items():
        column = frame[name]
        if column.null_count() == len(column) and not isinstance(constant, str):
            column = column.cast(pl.Float64)  # a column without any value is read as text
        if column.dtype.is_float():
            column = column.fill_nan(None)
        alike = column.dtype.is_numeric() == isinstance(constant, int | float)
        if name in dataset.categories:
            column, constant = _as_text(column), str(constant)
        elif not alike:
            kind = "numbers" if column.dtype.is_numeric() else "text"
            raise UserError(f"{where}.impute.{name}: '{constant}' for a column of {kind}: state one of that kind")
        if column.dtype.is_integer() and float(constant).is_integer():
            constant = int(constant)
        elif column.dtype.is_integer():
            column = column.cast(pl.Float64)
        try:
            whole = column if column.dtype.is_numeric() else column.cast(pl.String)
            filled.append(whole.fill_null(constant))
        except pl.exceptions.InvalidOperationError:
            raise UserError(
                f"{where}.impute.{name}: '{constant}' does not fit into the column's type, {column.dtype}: convert the column, or drop it"
            ) from None
    return frame.with_columns(filled)
