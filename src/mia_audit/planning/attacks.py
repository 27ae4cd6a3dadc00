"""Time the attacks on a setting and their evaluation on this machine, with the audit's own code on random signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.run import scores_of
from mia_audit.attacks.subsets import counts
from mia_audit.evaluation.files import Scored, metric_rows
from mia_audit.evaluation.leave_outs import without_each
from mia_audit.planning.linear import fitted
from mia_audit.planning.pace import processor_seconds
from mia_audit.seeds import generator
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    from jaxtyping import Bool

    from mia_audit.attacks.run import Run

LEAST = 128
"""Number of records in the smallest timed run; larger runs have a multiple of this number."""


class AttackTimes:
    """Processor seconds of attacks and of their evaluation; attacks with the same code are timed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], float] = {}

    def __call__(self, runs: Sequence[Run], records: int, models: int, fprs: Sequence[float]) -> float:
        """Return the seconds to run these attacks on a setting, and to evaluate their scores as `mia-audit evaluate` does.

        The strongest attack is repeated for several numbers of models. It is assumed to take as long as the first
        attack that has a likelihood.
        """

        def timed(stage: Stage, run: Run) -> float:
            key = (stage, attacks[run.attack].score, run.likelihood, len(run.signals), records, models, tuple(fprs))
            if key not in self._known:
                self._known[key] = _seconds(stage, run, records, models, fprs)
            return self._known[key]

        own = [run for run in runs if not run.null_control]
        ratios = [run for run in own if run.likelihood != "none"]
        fewer = [run for run in ratios if (run.attack, run.signals) == (ratios[0].attack, ratios[0].signals)]
        seconds = sum(timed(_score, run) for run in runs) + sum(timed(_rescore, run) for run in own)
        return seconds + len(counts(models)) * sum(timed(_score, run) for run in fewer)


@dataclass(frozen=True)
class RandomSignals:
    """Random signals of an attack, and a membership with half of the records in every model."""

    run: Run
    readings: list[Reading]
    member: Bool[np.ndarray, "N K"]
    fprs: Sequence[float]

    @classmethod
    def of(cls, run: Run, records: int, models: int, fprs: Sequence[float]) -> RandomSignals:
        """Draw lognormal signals, independent of the membership."""
        random = generator(0, "plan", records, models)
        member = records // 2 > random.random((models, records)).argsort(axis=1).T
        readings = [
            Reading(signal, [np.exp(random.standard_normal((models, records)).T).astype(np.float32)])
            for signal in run.signals
        ]
        return cls(run, readings, member, fprs)


Stage = Callable[[RandomSignals], object]


def _score(made: RandomSignals) -> None:
    by_signal = {reading.signal: reading.queries for reading in made.readings}
    (scores,) = scores_of([made.run], by_signal.__getitem__, made.member, made.member)
    records, models = made.member.shape
    key = (made.run.attack, made.run.signal, made.run.likelihood, made.run.null_control)
    stored = scores.scores.astype(np.float32)
    metric_rows(Scored(key, np.arange(models), np.arange(records), made.member, stored), made.fprs, confidence=0.95)


def _rescore(made: RandomSignals) -> None:
    without_each(made.run, made.readings, made.member, made.fprs)


def _seconds(stage: Stage, run: Run, records: int, models: int, fprs: Sequence[float]) -> float:
    def seconds(count: int) -> float:
        made = RandomSignals.of(run, min(count * LEAST, max(records, 2)), models, fprs)
        return processor_seconds(lambda: stage(made))

    seconds(1)  # the first run includes set-up
    return fitted(seconds, ceil(records / LEAST), few=1)(records / LEAST)
