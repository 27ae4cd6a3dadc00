"""ladder.csv: what every rung of `mia-audit ladder` found, and what the next one takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError

if TYPE_CHECKING:
    import polars as pl

FILE = "ladder.csv"

COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("setting",), str),
    "models": int,
    **dict.fromkeys(("attack", "signal", "likelihood", "metric"), str),
    "scored": float,
    **dict.fromkeys(("mean", "low", "high", "asked"), float),
    "decision": str,
    "more": int,
    "seconds": float,
    "recipe": str,
}
"""Columns and their types.

`models` are the models of the setting at that rung. `scored` is the share of records that the attack scores, `asked` the half
width of the interval at which the ladder stops. `more` are the models a setting that the next rung adds, null at the last one,
and `seconds` what they take, null where that is not known. `recipe` is the digest of all that the setting's results depend on
besides the number of models.
"""


def write_rungs(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of all rungs so far; numbers have six significant digits, unknown ones are left out."""
    import polars as pl

    from mia_audit.sanitise import csv
    from mia_audit.storage import write_text

    printed = [{name: _printed(row.get(name), kind) for name, kind in COLUMNS.items()} for row in rows]
    write_text(path, csv(pl.DataFrame(printed, schema=dict.fromkeys(COLUMNS, pl.String))))


def _printed(value: Any, kind: type) -> str | None:
    if value is None or value != value:  # NaN
        return None
    return f"{value:.6g}" if kind is float else str(value)


def read_rungs(path: Path) -> pl.DataFrame:
    """Read the rows; UserError for a file that is not as `write_rungs` writes it."""
    import polars as pl

    try:
        frame = pl.read_csv(path, schema_overrides=COLUMNS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: not a table as mia-audit ladder writes it: {str(error).splitlines()[0]}") from None
    if missing := [name for name in COLUMNS if name not in frame.columns]:
        raise UserError(f"{path}: no column '{missing[0]}'; run mia-audit ladder again, which writes it")
    return frame.select(list(COLUMNS))
