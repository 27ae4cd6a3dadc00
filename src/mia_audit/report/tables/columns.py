"""Columns that several tables share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mia_audit.report.tables.layout import Cell, Column, text
from mia_audit.report.text.formatting import fixed, interval, percent, percent_interval, spread

if TYPE_CHECKING:
    from mia_audit.report.data.findings import Estimate, Leak
    from mia_audit.report.data.spec import Setting

SETTING: dict[str, type] = dict.fromkeys(("dataset", "architecture", "mechanism", "epsilon"), str)
ATTACK: dict[str, type] = dict.fromkeys(("attack", "signal", "likelihood"), str)
SETTING_COLUMNS = text("Data set", "Architecture", "Mechanism", "ε")
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


def printed(title: str, name: str) -> tuple[Column, Any]:
    """Print a column of text as it is; null as a dash."""
    return Column(title, number=False), lambda row: "–" if row[name] is None else str(row[name])


def setting_cells(setting: Setting) -> list[Cell | str]:
    """Return the cells of `SETTING_COLUMNS`, with the setting's labels."""
    epsilon = "∞" if setting.epsilon == "inf" else setting.reported_epsilon
    return [setting.dataset_name, setting.architecture_name, setting.label or setting.mechanism_name, epsilon]


def setting_columns(settings: Sequence[Setting]) -> list[tuple[Column, Any]]:
    """Print the columns that identify a setting, with its labels."""
    cells = {tuple(identity(one).values()): setting_cells(one) for one in settings}

    def cell(place: int, row: Mapping[str, Any]) -> Cell | str:
        values = tuple(row[name] for name in SETTING)
        return cells[values][place] if values in cells else str(values[place])

    return [(column, partial(cell, place)) for place, column in enumerate(SETTING_COLUMNS)]


ATTACK_COLUMNS = [printed("Attack", "attack"), printed("Signal", "signal"), printed("Likelihood", "likelihood")]


def spread_column(title: str, name: str, missing: str = "–") -> tuple[Column, Any]:
    """Print mean ± standard deviation."""
    mean, sd = f"{name}_mean", f"{name}_sd"
    return Column(title), lambda row: missing if row[mean] is None else spread(row[mean], row[sd])


def interval_column(prefix: str = "") -> tuple[Column, Any]:
    """Print the interval of the column before in brackets; nothing for a single target."""
    low, high = f"{prefix}low", f"{prefix}high"
    return Column("", number=False), lambda row: "" if row[low] is None else f"[{fixed(row[low])}, {fixed(row[high])}]"


def estimate_cell(value: Estimate | None) -> Cell:
    """Print an estimate with its interval; unknown as a dash."""
    return Cell("–") if value is None else Cell(fixed(value.mean), (interval(value),))


def auc_cell(leak: Leak | None) -> Cell:
    """Print the AUC of an attack with its interval; unknown as a dash."""
    return estimate_cell(leak.auc_estimate if leak else None)


def rate_cell(value: Estimate) -> Cell:
    """Print an estimate of a rate in percent, with its interval."""
    return Cell(percent(value.mean), (percent_interval(value),))


def leak_cells(leak: Leak | None, fpr: float | None) -> list[Cell]:
    """Print AUC and TPR of an attack, which is not resolvable without an FPR; unknown as dashes."""
    if leak is None:
        return [Cell("–")] * 2
    return [auc_cell(leak), Cell("not resolvable") if fpr is None else rate_cell(leak.tpr_estimate)]
