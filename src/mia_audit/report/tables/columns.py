"""Columns that several tables share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.report.tables.layout import Cell, Column
from mia_audit.report.text.formatting import fixed, spread

if TYPE_CHECKING:
    from mia_audit.report.data.findings import Estimate
    from mia_audit.report.data.spec import Setting

SETTING: dict[str, type] = dict.fromkeys(("dataset", "architecture", "mechanism", "epsilon"), str)
PARTS = ("mean", "sd", "low", "high")


def identity(setting: Setting) -> dict[str, str]:
    """Return the values that identify a setting."""
    return {name: getattr(setting, name) for name in SETTING} | {"epsilon": setting.reported_epsilon}


def parts(name: str, value: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as columns; unknown ones are null."""
    values = [getattr(value, part) if value else math.nan for part in PARTS]
    return {f"{name}_{part}": None if math.isnan(known) else known for part, known in zip(PARTS, values, strict=True)}


def parts_schema(*names: str) -> dict[str, type]:
    """Return the columns of estimates."""
    return {f"{name}_{part}": float for name in names for part in PARTS}


def printed(title: str, name: str, number: bool = False) -> tuple[Column, Any]:
    """Print a column as it is; null as a dash."""
    return Column(title, number=number), lambda row: "–" if row[name] is None else str(row[name])


def printed_epsilon(epsilon: str) -> str:
    """Return ε as it is printed."""
    return "∞" if epsilon == "inf" else epsilon


def setting_columns(settings: Sequence[Setting]) -> list[tuple[Column, Any]]:
    """Print the columns that identify a setting, with its labels."""
    called = {tuple(identity(one).values()): one for one in settings}

    def name(of: Callable[[Setting], str], column: str) -> Any:
        return lambda row: of(one) if (one := called.get(tuple(row[name] for name in SETTING))) else str(row[column])

    return [
        (Column("Data set", number=False), name(lambda one: one.dataset_name, "dataset")),
        (Column("Architecture", number=False), name(lambda one: one.architecture_name, "architecture")),
        (Column("Mechanism", number=False), name(lambda one: one.label or one.mechanism_name, "mechanism")),
        (Column("ε", number=False), lambda row: printed_epsilon(row["epsilon"])),
    ]


ATTACK_COLUMNS = [printed("Attack", "attack"), printed("Signal", "signal"), printed("Likelihood", "likelihood")]


def spread_column(title: str, name: str, missing: str = "–") -> tuple[Column, Any]:
    """Print mean ± standard deviation."""
    return Column(title), lambda row: missing if row[f"{name}_mean"] is None else spread(*_pair(row, name))


def _pair(row: Mapping[str, Any], name: str) -> tuple[float, float | None]:
    return row[f"{name}_mean"], row[f"{name}_sd"]


def interval_cell(row: Mapping[str, Any], low: str, high: str) -> str:
    """Print an interval in brackets; nothing for a single target."""
    return "" if row[low] is None else f"[{fixed(row[low])}, {fixed(row[high])}]"


def estimate_cell(value: Estimate | None) -> Cell:
    """Print an estimate with its interval; unknown as a dash."""
    from mia_audit.report.text.formatting import interval

    if value is None:
        return Cell("–")
    return Cell(fixed(value.mean), () if math.isnan(value.low) else (interval(value),))
