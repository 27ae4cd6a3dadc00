"""Read a table as it is: separators, decimal commas and words for missing values; refuse one that means something else than it says."""

from __future__ import annotations

import csv
import re
import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from mia_audit.errors import UserError, few, first_line
from mia_audit.pools.persons import MISSING
from mia_audit.pools.scaling import PADDED, no_words
from mia_audit.pools.section import root_of
from mia_audit.storage.unpacked import check_csv, check_workbook, read_foreign

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import polars as pl

    from mia_audit.pools.section import Dataset

REPEATED = re.compile(r"(.*)_duplicated_\d+")
"""The name that polars gives to a second column of the same name."""
CHUNK = 1 << 20
"""Number of bytes of a file's first line that are read for the names of columns."""
SEPARATORS = (";", "\t", "|")
"""Separators of columns in .csv files whose first line has no comma."""
MOST_COLUMNS, MOST_HEADER = 50_000, 20_000_000
"""Largest number of columns of a CSV file, and number of bytes of its first line that are read to count columns."""
UNNAMED = "unnamed"
"""The name of a column whose header is empty, such as that of an exported index."""
DECIMAL_COMMA = r"^[-+]?\d+(,\d+)?([eE][-+]?\d+)?$"
NINES = r"^-?9{2,}(\.0+)?$"
"""Numbers that stand for missing values, if they lie apart from all others."""
COLLAPSED = 0.01
"""Largest share of different rows that may become equal as numbers of 32 bits."""
YEARS = range(1900, 2101)


def separator_and_names(path: Path) -> tuple[str, list[str]]:
    """Return what separates the columns of a CSV file, and their names; an empty name is `UNNAMED`."""
    with path.open(encoding="utf-8-sig", newline="") as text:
        line = text.readline(CHUNK)
    separator = "," if "," in line else next((mark for mark in SEPARATORS if mark in line), ",")
    names = next(csv.reader([line], delimiter=separator), [])
    return separator, [name or UNNAMED for name in names]


def read_frame(dataset: Dataset, where: str) -> tuple[Path, pl.DataFrame]:
    """Return a section's file and all of its columns; UserError if it is not a table."""
    import polars as pl
    import pyarrow as pa

    root = root_of(dataset, where)
    readers = {
        ".csv": lambda: _read_csv(root, where, dataset),
        ".parquet": lambda: read_foreign(root),
        ".xlsx": lambda: _read_sheet(root, where, dataset),
    }
    if root.suffix.lower() not in readers or not root.is_file():
        raise UserError(f"{where}.path: {root}: expected a file that ends in {' or '.join(readers)}")
    try:
        frame = readers[root.suffix.lower()]()
    except UnicodeDecodeError:
        raise _not_utf8(root, where) from None
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, csv.Error, BadZipFile) as error:
        if "utf" in str(error).lower():
            raise _not_utf8(root, where) from None
        raise UserError(f"{where}.path: {root}: not readable as a table: {first_line(error)}") from None
    _check_header(frame, str(root), where)
    frame = frame.with_columns(_without_words(frame, dataset))
    empty = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    if empty.any():
        rows = few(str(row + 1) for row in empty.arg_true())
        raise UserError(f"{where}.path: {root}: rows {rows} (below the header) have no value at all: remove them")
    return root, frame


def _not_utf8(root: Path, where: str) -> UserError:
    with root.open("rb") as file:
        encoding = "UTF-16" if file.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE) else "LATIN1"
    files = [shlex.quote(str(path)) for path in (root, root.with_stem(f"{root.stem}-utf8"))]
    return UserError(
        f"{where}.path: {root}: not readable as a table: the text is not in UTF-8; save it in UTF-8, for example by:"
        f" iconv -f {encoding} -t UTF-8 {' > '.join(files)}"
    )


def _read_csv(path: Path, where: str, dataset: Dataset) -> pl.DataFrame:
    """Read a CSV file; numbers with decimal commas become numbers; those with leading zeros, ids and stated classes stay text.

    So do fractions in a column with stated categories, because as numbers they would change other values of the column.
    """
    import polars as pl

    with path.open("rb") as file:
        line = file.readline(MOST_HEADER)
    if (columns := 1 + max(map(line.count, (b",", b";", b"\t", b"|")))) > MOST_COLUMNS:
        raise UserError(f"{where}.path: {path}: {columns:,} columns; expected at most {MOST_COLUMNS:,}")
    check_csv(path)
    separator, _ = separator_and_names(path)
    person, stated = dataset.person, dataset.categories
    texts = {name: pl.String for name in (person, dataset.classes and dataset.label) if name}
    frame = pl.read_csv(path, infer_schema_length=None, glob=False, separator=separator, schema_overrides=texts)
    fractions = [name for name in frame.columns if name in stated and frame[name].dtype.is_float()]
    whole = [name for name in frame.columns if frame[name].dtype.is_integer()] + fractions
    changed = []
    if whole:
        text = pl.read_csv(path, infer_schema=False, glob=False, separator=separator, columns=whole)
        changed = [text[name] for name in whole if name in fractions or text[name].str.contains(PADDED).any()]
    others = [
        number
        for column in frame
        if column.name not in texts and (number := _as_numbers(column, separator, dataset)) is not None
    ]
    changed += [number for number in others if number.name not in stated or number.dtype.is_integer()]
    frame = frame.with_columns(changed)
    return frame.rename({"": UNNAMED}) if "" in frame.columns else frame


def _read_sheet(path: Path, where: str, dataset: Dataset) -> pl.DataFrame:
    """Read the only sheet of a workbook that has cells; those of persons and stated roles are read each by itself.

    Ids of persons and values of stated categories and classes are text. In a column of mixed cells, others are rounded as text.
    """
    import polars as pl

    check_workbook(path)
    try:
        sheets = pl.read_excel(path, sheet_id=0, engine="calamine", infer_schema_length=None, raise_if_empty=False)
    except ImportError:
        raise UserError(
            f"{where}.path: {path}: .xlsx needs fastexcel, which is missing; install it with: pip install 'mia-audit[xlsx]', or save the sheet as CSV"
        ) from None
    except Exception as error:  # the library raises errors of its own for damaged workbooks
        raise UserError(f"{where}.path: {path}: not readable as a table: {first_line(error)}") from None
    filled = {name: frame for name, frame in sheets.items() if frame.width}
    if len(filled) != 1:
        held = f"{len(filled)} sheets ({few(filled)})" if filled else "no cells"
        raise UserError(f"{where}.path: {path}: {held}; expected one sheet: save the one to audit in a file of its own")
    ((name, frame),) = filled.items()
    kinds: dict[str, type[pl.DataType]] = {}
    for column in frame:
        texts = dataset.columns.get(column.name) == "feature" and column.dtype == pl.String
        if column.name in (dataset.person, dataset.classes and dataset.label, *dataset.categories):
            kinds[column.name] = pl.String
        elif texts and column.cast(pl.Float64, strict=False).null_count() == column.null_count():
            kinds[column.name] = pl.Float64
    if not kinds:
        return frame
    return pl.read_excel(path, sheet_name=name, engine="calamine", infer_schema_length=None, schema_overrides=kinds)


def _words(dataset: Dataset, column: str) -> list[str]:
    """Return the words for missing values in a column, without those that the config states as its values."""
    return [word for word in MISSING if word not in dataset.categories.get(column, ())]


def _as_numbers(column: pl.Series, separator: str, dataset: Dataset) -> pl.Series | None:
    """Return a column of text as numbers if it holds only these, blanks and words for missing values; otherwise None."""
    import polars as pl

    if column.dtype != pl.String:
        return None
    text = column.str.strip_chars()
    known = text.filter(~(text.is_null() | text.is_in(_words(dataset, column.name))))
    if not len(known) or known.str.contains(PADDED).any():
        return None
    if separator != "," and known.str.contains(DECIMAL_COMMA).all():
        text = text.str.replace(",", ".", literal=True)
        known = known.str.replace(",", ".", literal=True)
    for kind in (pl.Int64, pl.Float64):
        if not known.cast(kind, strict=False).is_null().any():
            return text.cast(kind, strict=False)
    return None


def _without_words(frame: pl.DataFrame, dataset: Dataset) -> list[pl.Series]:
    """Return the columns of text with words for missing values, as missing values; values that the config states are none."""
    import polars as pl

    changed = []
    for column in frame:
        if column.dtype == pl.String and column.name != dataset.label:
            missing = column.str.strip_chars().is_in(_words(dataset, column.name))
            if missing.any():
                changed.append(column.zip_with(~missing.fill_null(True), pl.Series([None], dtype=pl.String)))
    return changed


def _check_header(frame: pl.DataFrame, root: str, where: str) -> None:
    if any("\0" in name or "\ufffd" in name for name in frame.columns):
        raise _not_utf8(Path(root), where)
    names = [REPEATED.fullmatch(name) for name in frame.columns]
    twice = [match[1] for match in names if match and (match[1] or UNNAMED) in frame.columns]
    if like_data := _data_in_header(
        [match[1] if match else name for match, name in zip(names, frame.columns, strict=True)]
    ):
        raise UserError(
            f"{where}.path: {root}: the first row looks like data ('{like_data}'): expected the names of columns there; add them"
        )
    if twice:
        raise UserError(f"{where}.path: {root}: column '{twice[0] or UNNAMED}' occurs twice: rename or remove one")


def _data_in_header(names: Sequence[str]) -> str:
    """Return a name that is a value, if a third of the names are numbers that are neither years nor counted; otherwise nothing."""
    numbers = {
        name: float(name) for name in names if re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", name)
    }
    values = list(numbers.values())
    counted = all(second - first == 1 for first, second in pairwise(values))
    if 3 * len(numbers) < len(names) or (len(values) > 1 and counted) or all(value in YEARS for value in values):
        return ""
    return next(iter(numbers), "")


def check_complete(frame: pl.DataFrame, label: str, root: str, where: str) -> None:
    """Raise UserError for a table without rows, and for values that are missing or not finite; it names every column and its first such row."""
    if not len(frame):
        raise UserError(f"{where}.path: {root}: no rows")
    problems = []
    for column in frame:
        missing = column.is_null()
        if column.dtype.is_float():
            missing |= ~column.is_finite().fill_null(True)
        if missing.any():
            row = int(missing.arg_max() or 0) + 1
            problems.append(f"'{column.name}' (first in row {row}, {missing.sum()} in all)")
    if problems:
        raise UserError(
            f"{where}.path: {root}: values are missing or not finite in column {few(problems)}; rows count from 1 below the"
            " header. Drop the column (columns: drop), state a constant for it (impute), or leave those rows out"
            + f"; a row without a class ('{label}') can only be left out"
            * bool(frame[label].null_count())
        )


def check_words(text: pl.Series, root: str, where: str) -> None:
    """Raise UserError for a column of text that holds numbers beside words, numbers with marks, or dates."""
    if found := no_words(text):
        held, correct = found
        raise UserError(
            f"{where}.path: {root}: column '{text.name}' holds {held}: {correct}, drop the column"
            f" (columns: {{{text.name}: drop}}), or say that they are words: columns: {{{text.name}: category}}"
        )


def check_nines(column: pl.Series, root: str, where: str) -> None:
    """Raise UserError for a column whose smallest or largest value is -999 or the like, repeated, and far from all others."""
    import polars as pl

    values = column.unique().sort()
    if len(values) < 4 or values.dtype == pl.Boolean:
        return
    for end, others in ((values[0], values[1:]), (values[-1], values[:-1])):
        low, high = others[0], others[-1]
        if re.fullmatch(NINES, str(end)) and min(abs(end - low), abs(end - high)) > high - low:
            rows = int((column == end).sum())
            if rows > 1:
                raise UserError(
                    f"{where}.path: {root}: column '{column.name}' holds {end} in {rows} rows, and otherwise {low} to {high}, as if it stood for"
                    " missing values: leave these cells empty and state a constant (impute), or say that it is a number:"
                    f" columns: {{{column.name}: feature}}"
                )


def check_spelling(values: Sequence[str], what: str, remedy: str) -> None:
    """Raise UserError for values that differ only by blanks, case or a trailing dot."""
    known: dict[str, str] = {}
    for value in values:
        first = known.setdefault(" ".join(value.split()).rstrip(".").strip().casefold(), value)
        if first != value:
            raise UserError(
                f"{what} holds '{first}' and '{value}', which differ only by blanks, case or a dot: write them alike, or {remedy}"
            )


def check_distinct(frame: pl.DataFrame, values: np.ndarray, root: str, where: str) -> None:
    """Raise UserError if rows or most values of a column, which differ in the file, become equal as numbers of 32 bits."""
    import polars as pl

    columns = {
        column.name: (column.n_unique(), column.cast(pl.Float64).cast(pl.Float32).n_unique())
        for column in frame
        if column.dtype.is_numeric()
    }
    lost = {name: counts for name, counts in columns.items() if counts[1] < counts[0]}
    if not lost:
        return
    name, (before, after) = min(lost.items(), key=lambda item: item[1][1] / item[1][0])
    rows = frame.n_unique()
    if 2 * after < before or rows - pl.DataFrame(values).n_unique() > COLLAPSED * rows:
        raise UserError(
            f"{where}.path: {root}: column '{name}' has {before} different values, but only {after} as numbers of 32 bits, so that"
            f" rows would be taken for duplicates: subtract its smallest value, or drop it (columns: {{{name}: drop}})"
        )
