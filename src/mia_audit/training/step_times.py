"""The time of a training step under every mechanism.

Training writes the time of every model to a separate table below benchmarks/, because times differ between runs, while
files beside the models have the same bytes after every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from mia_audit.storage import read_table, write_table

if TYPE_CHECKING:
    import polars as pl

KIND = "step_times"
REFERENCES = ("none", "dp-sgd")
"""Mechanisms whose step times are references for the others."""

SCHEMA = pa.schema([("shadow", pa.int32()), ("milliseconds", pa.float64())])
"""A table of one row, written only if a single job trained the model from the first step to the last."""


class StepTimer:
    """Measure the time between the ends of a model's first and last step, which excludes set-up and evaluation."""

    def __init__(self, observer: Callable[[int, int], None]) -> None:
        self._observer, self._steps = observer, 0
        self._first = self._last = 0.0

    def step(self, records: int, epoch: int) -> None:
        """Record the end of a step, and call the observer."""
        self._last = time.monotonic()
        if not self._steps:
            self._first = self._last
        self._steps += 1
        self._observer(records, epoch)

    @property
    def milliseconds(self) -> float | None:
        """Mean time of a step; None before the second."""
        return 1000 * (self._last - self._first) / (self._steps - 1) if self._steps > 1 else None


def write_step_time(folder: Path, shadow: int, milliseconds: float | None) -> None:
    """Write the time of a model to its table in a folder; a model without a time has no table."""
    if milliseconds is not None:
        table = pa.table([[shadow], [milliseconds]], schema=SCHEMA)
        write_table(folder / f"shadow-{shadow}.parquet", table, KIND, len(table))


class Timed(NamedTuple):
    """A setting whose steps are timed, with the registered name of its mechanism."""

    dataset: str
    architecture: str
    mechanism: str
    registered: str
    epsilon: str

    def paths(self, folder: Path, models: int) -> Iterator[Path]:
        """Yield the existing tables of a setting's models; a deleted table does not cause the model to be trained again."""
        own = folder / f"{self.dataset}-{self.architecture}-{self.mechanism}-eps{self.epsilon}"
        yield from (path for shadow in range(models) if (path := own / f"shadow-{shadow}.parquet").exists())


def step_times(folder: Path, settings: Sequence[Timed], models: int) -> pl.DataFrame:
    """Return a row per setting: dataset, architecture, mechanism, epsilon, models timed, median milliseconds, and ratios.

    Ratios are those to the step times of `none` and of `dp-sgd` on the same data set and architecture, at the same ε if
    there are several. They are null if a time is missing.
    """
    import polars as pl

    times = {setting: _times(setting.paths(folder, models)) for setting in settings}
    medians = {setting: median(known) for setting, known in times.items() if known}
    rows = []
    for setting, known in times.items():
        own = medians.get(setting)
        references = (_reference(medians, setting, name) for name in REFERENCES)
        ratios = [own / other if own and other else None for other in references]
        named = (setting.dataset, setting.architecture, setting.mechanism, setting.epsilon)
        rows.append((*named, len(known), own, *ratios))
    schema: dict[str, Any] = dict.fromkeys(("dataset", "architecture", "mechanism", "epsilon"), pl.String)
    schema |= {"models": pl.Int32}
    schema |= dict.fromkeys(("ms_per_step", *(f"times_{name}" for name in REFERENCES)), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _times(paths: Iterator[Path]) -> list[float]:
    return [time for path in paths for time in read_table(path, KIND)["milliseconds"].to_pylist()]


def _reference(medians: Mapping[Timed, float], setting: Timed, name: str) -> float | None:
    """Return the step time of a mechanism on the same data set and architecture, at the same ε if the mechanism has it."""
    beside = {
        other.epsilon: value
        for other, value in medians.items()
        if (other.dataset, other.architecture, other.registered) == (setting.dataset, setting.architecture, name)
    }
    return beside.get(setting.epsilon, next(iter(beside.values()), None))
