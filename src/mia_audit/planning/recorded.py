"""The cost of more models, from the recorded times of an audit's own jobs in results/{audit}/benchmarks."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mia_audit.config.expand import Setting

PER_MODEL = ("train", "signals")
"""Rules whose jobs process models one by one."""

OVER_MODELS = ("merge", "attack", "evaluate")
"""Rules that process all of a setting's models together, and are run again if models are added."""


@dataclass(frozen=True)
class Recorded:
    """Seconds of one process: for one more model of every setting, and for the last run of the rules over all models."""

    each: float
    together: float

    def price(self, models: int, more: int) -> float:
        """Return the seconds of this many more models per setting; the time of attacks is assumed to be proportional to the number of models."""
        return self.each * more + self.together * (models + more) / models


def recorded(results: Path, settings: Iterable[Setting]) -> Recorded | None:
    """Return the seconds of these settings' jobs; None if a setting has no models, or no times.

    A model's seconds are the mean over existing models. A job that ran again although its models were already trained
    has overwritten their times; the mean is then too low.
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
