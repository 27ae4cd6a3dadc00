"""What more models of an audit take, by what its own jobs have taken: the tables of use in results/{audit}/benchmarks."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mia_audit.config.expand import Setting

PER_MODEL = ("train", "signals")
"""Rules whose jobs work on models one by one."""

OVER_MODELS = ("merge", "attack", "evaluate")
"""Rules that work on all of a setting's models together, and work again where there are more."""


@dataclass(frozen=True)
class Recorded:
    """Seconds of one process: for one more model of every setting, and for the rules over all models as they ran last."""

    each: float
    together: float

    def price(self, models: int, more: int) -> float:
        """Return what so many more models of every setting take; attacks are taken to grow with the number of models."""
        return self.each * more + self.together * (models + more) / models


def recorded(results: Path, settings: Iterable[Setting]) -> Recorded | None:
    """Return what the jobs of these settings took; None where one has no models, or no times of them.

    A model's seconds are the mean over those that are there. A job that runs again overwrites its times, and finds its models
    trained: the mean is then too low.
    """
    each = together = 0.0
    for setting in settings:
        models = len(list((results / setting.path / "models").glob("shadow-*.parquet")))
        spent = sum(_seconds(results, setting, PER_MODEL))
        if not models or not spent:
            return None
        each += spent / models
        together += sum(_seconds(results, setting, OVER_MODELS))
    return Recorded(each, together)


def _seconds(results: Path, setting: Setting, rules: Iterable[str]) -> Iterator[float]:
    name = f"{setting.dataset}-{setting.architecture}-{setting.mechanism}-eps{setting.epsilon}"
    for rule in rules:
        folder = results / "benchmarks" / rule
        for path in (folder / f"{name}.tsv", *folder.glob(f"{name}-*.tsv")):
            if path.is_file():
                with path.open(encoding="utf-8", newline="") as file:
                    yield from (float(row["seconds"]) for row in csv.DictReader(file, delimiter="\t"))
