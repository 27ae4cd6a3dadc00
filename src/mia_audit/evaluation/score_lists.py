"""Lists of scores of members and non-members that do not come from an audit: those of one model, or of canaries."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from mia_audit.errors import UserError
from mia_audit.evaluation.files import Scored
from mia_audit.storage.contracts import CONTRACTS

KEY = ("given", "scores", "none", False)
"""The attack, signal, likelihood and null_control of lists, which do not state any."""

LONG, WIDE = {"member", "score"}, {"in", "out"}

EXPECTED = "expected the columns `member` (0 or 1) and `score`, or `in` and `out`; higher scores mean members"


def is_score_list(path: Path) -> bool:
    """Return whether a file is a list of scores, and not an audit's scores table, according to its ending and columns."""
    if path.suffix.lower() == ".csv":
        return True
    try:
        names = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return False  # the reader of scores tables will report what is wrong
    return not set(CONTRACTS["scores"]) <= names and (names >= LONG or names >= WIDE)


def read_score_list(path: Path) -> Scored:
    """Return the scores of one target from a CSV or Parquet file: columns `member` and `score`, or `in` and `out`, which may differ in length."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; {EXPECTED}")
    try:
        read = partial(pl.read_csv, infer_schema_length=None) if path.suffix.lower() == ".csv" else pl.read_parquet
        frame = read(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: damaged or empty ({' '.join(str(error).split())[:120]}); {EXPECTED}") from None
    frame = frame.rename(_clean_names(frame.columns, path))
    if set(frame.columns) >= LONG:
        score, member = _numbers(frame, "score", path), _numbers(frame, "member", path)
        if len(score) != len(frame) or len(member) != len(frame) or not np.isin(member, (0, 1)).all():
            raise UserError(f"{path}: empty cells, or memberships other than 0 and 1; {EXPECTED}")
    elif set(frame.columns) >= WIDE:
        inside, outside = _numbers(frame, "in", path), _numbers(frame, "out", path)
        score = np.concatenate([inside, outside])
        member = np.repeat([1, 0], [len(inside), len(outside)])
    else:
        raise UserError(f"{path}: the columns are {', '.join(frame.columns)}; {EXPECTED}")
    if not np.isfinite(score).all():
        raise UserError(f"{path}: a score is not a finite number; {EXPECTED}")
    here = member == 1
    if here.all() or not here.any():
        raise UserError(f"{path}: no scores of {'non-' if here.any() else ''}members; {EXPECTED}")
    return Scored(KEY, np.zeros(1, dtype=np.int32), np.arange(len(score)), here[:, None], score[:, None])


def _clean_names(columns: list[str], path: Path) -> dict[str, str]:
    """Return the names of the columns that are read, by those in the file; UserError for a name that is repeated."""
    clean = {
        name: re.sub(r"_duplicated_\d+$", "", name).strip().lower() for name in columns
    }  # so polars names the second
    names = {name: known for name, known in clean.items() if known in LONG | WIDE}
    if repeated := [known for known in LONG | WIDE if list(names.values()).count(known) > 1]:
        raise UserError(f"{path}: several columns are named '{min(repeated)}'; {EXPECTED}")
    return names


def _numbers(frame: pl.DataFrame, name: str, path: Path) -> np.ndarray:
    """Return the cells of a column that are not empty, as float64."""
    column = frame[name].drop_nulls()
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise UserError(f"{path}: column '{name}' holds {str(column.dtype).lower()}, not numbers; {EXPECTED}")
    values: np.ndarray = column.cast(pl.Float64).to_numpy()
    return values
