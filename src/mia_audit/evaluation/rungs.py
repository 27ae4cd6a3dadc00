"""ladder.csv: the results of every rung of `mia-audit ladder`, and the cost of the next one."""

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
    **dict.fromkeys(("mean", "low", "high", "requested"), float),
    "decision": str,
    "more": int,
    "seconds": float,
    "recipe": str,
}
"""Columns and their types.

`models` is the setting's number of models at that rung, `scored` the share of records that the attack scores,
`requested` the half width of the interval at which the ladder stops. `more` is the number of models that the next rung
adds to the setting (null at the last rung). `seconds` is the time that these models take (null if unknown). `recipe` is
the digest of everything on which the setting's results depend, except the number of models.
"""


def write_rungs(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of all rungs so far; numbers have six significant digits, and unknown ones are empty cells."""
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
    """Read the rows; UserError for a file that `write_rungs` did not write."""
    import polars as pl

    try:
        frame = pl.read_csv(path, schema_overrides=COLUMNS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: not a table written by mia-audit ladder: {str(error).splitlines()[0]}") from None
    if missing := [name for name in COLUMNS if name not in frame.columns]:
        raise UserError(f"{path}: no column '{missing[0]}'; mia-audit ladder writes it when run again")
    return frame.select(list(COLUMNS))
