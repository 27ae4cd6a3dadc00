"""What a training step took, off the logs of training: times are measured, so they stand in no file that must be the same again."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from mia_audit.training.progress import step_times

if TYPE_CHECKING:
    import polars as pl

BESIDE = ("none", "dp-sgd")
"""Mechanisms whose step the others' are told in."""


def costs(logs: Path, settings: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Return a row a setting: dataset, architecture, mechanism, epsilon, models timed, median milliseconds a step, and ratios.

    `settings` are dataset, architecture, mechanism, the registered name of that mechanism and ε. Ratios are to the step of
    `none` and of `dp-sgd` on the same data set and architecture, at the same ε where there are several. Null: not in the logs.
    """
    import polars as pl

    times = {tuple(setting): _times(logs, setting) for setting in settings}
    medians = {setting: median(known) for setting, known in times.items() if known}
    rows = []
    for setting, known in times.items():
        dataset, architecture, mechanism, _, epsilon = setting
        own = medians.get(setting)
        ratios = [own / other if own and (other := _beside(medians, setting, name)) else None for name in BESIDE]
        rows.append((dataset, architecture, mechanism, epsilon, len(known), own, *ratios))
    schema: dict[str, Any] = dict.fromkeys(("dataset", "architecture", "mechanism", "epsilon"), pl.String)
    schema |= {"models": pl.Int32}
    schema |= dict.fromkeys(("ms_per_step", *(f"times_{name}" for name in BESIDE)), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _times(logs: Path, setting: Sequence[str]) -> list[float]:
    """Return the milliseconds a step of every model of a setting whose training the logs tell."""
    dataset, architecture, mechanism, _, epsilon = setting
    stem = glob.escape(f"{dataset}-{architecture}-{mechanism}-eps{epsilon}")
    paths = sorted(logs.glob(f"{stem}-[0-9]*-[0-9]*.log"))
    return [time for path in paths for time in step_times(path.read_text())]


def _beside(medians: dict[tuple[str, ...], float], setting: tuple[str, ...], name: str) -> float | None:
    """Return the step of a mechanism on the same data set and architecture, at the same ε if it was trained there."""
    found = {other[4]: value for other, value in medians.items() if other[:2] == setting[:2] and other[3] == name}
    return found.get(setting[4], next(iter(found.values()), None))
