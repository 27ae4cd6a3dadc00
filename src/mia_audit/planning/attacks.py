"""Time the attacks on a setting and their evaluation on this machine, with the audit's own code on random signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.run import plan as attack_runs
from mia_audit.attacks.run import scores_of
from mia_audit.attacks.subsets import counts
from mia_audit.config.expand import families_of, settings
from mia_audit.evaluation.files import Scored, metric_rows
from mia_audit.evaluation.leave_outs import without_each
from mia_audit.planning.linear import fitted
from mia_audit.planning.pace import processor_seconds
from mia_audit.seeds import generator
from mia_audit.signals.explanation_sets import STEM
from mia_audit.signals.families import columns
from mia_audit.signals.name import FIT_ERROR, SUMMARIES, Reading, is_signal, read_signal

if TYPE_CHECKING:
    from jaxtyping import Bool

    from mia_audit.attacks.run import Run
    from mia_audit.config.schema import Audit
    from mia_audit.planning.sizes import Size

LEAST = 128
"""Number of records in the smallest timed run."""


@dataclass(frozen=True)
class Attacked:
    """The signals of a setting's models, or of the explanation sets of a black box: number of columns, runs of attacks, and size."""

    columns: int
    runs: Sequence[Run]
    records: int
    models: int


AttackTimer = Callable[[Sequence[Attacked], Sequence[float]], float]
"""Returns the seconds to attack signals and to evaluate the scores, at these false-positive rates."""


def attacked(audit: Audit, sizes: Mapping[str, Size]) -> Iterator[Attacked]:
    """Yield all signals that an audit computes and attacks."""

    def of(columns: Sequence[str], dataset: str, models: int) -> Attacked:
        signals = [read_signal(name) for name in columns if is_signal(name)]
        runs = attack_runs(audit.attacks.methods, signals, audit.attacks.likelihoods)
        return Attacked(len(columns), runs, sizes[dataset].records, models)

    for setting in settings(audit):
        if setting.trained:
            families = families_of(audit)[setting.architecture].items()
            every = [name for family, options in families for name in columns(family, options)]
            yield of(every, setting.dataset, audit.number_of_models(setting.mechanism))
    for dataset, study in audit.private_explanations.items():
        for _ in range(len(study.black_boxes) * len(study.attacked)):
            every = [FIT_ERROR, *(f"{STEM}_{summary}" for summary in SUMMARIES)]
            yield of(every, dataset, audit.membership.models)


def attack_seconds(attacked: Sequence[Attacked], fprs: Sequence[float]) -> float:
    """Return the processor seconds to attack these signals, and to evaluate the scores as `mia-audit evaluate` does.

    Attacks with the same code are timed once. The strongest attack, which is repeated for several numbers of models, is
    assumed to take as long as the first one that has a likelihood.
    """
    known: dict[tuple[Any, ...], float] = {}

    def timed(stage: Stage, run: Run, one: Attacked) -> float:
        key = (stage, attacks[run.attack].score, run.likelihood, len(run.signals), one.records, one.models)
        if key not in known:
            known[key] = _seconds(stage, run, one.records, one.models, fprs)
        return known[key]

    seconds = 0.0
    for one in attacked:
        own = [run for run in one.runs if not run.null_control]
        ratios = [run for run in own if run.likelihood != "none"]
        fewer = [run for run in ratios if (run.attack, run.signals) == (ratios[0].attack, ratios[0].signals)]
        seconds += sum(timed(_score, run, one) for run in one.runs) + sum(timed(_rescore, run, one) for run in own)
        seconds += len(counts(one.models)) * sum(timed(_score, run, one) for run in fewer)
    return seconds


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
    without_each(made.run, made.readings, made.member, made.readings[0].queries[0], made.fprs)


def _seconds(stage: Stage, run: Run, records: int, models: int, fprs: Sequence[float]) -> float:
    def seconds(count: int) -> float:
        made = RandomSignals.of(run, count, models, fprs)
        return processor_seconds(lambda: stage(made))

    seconds(LEAST)  # the first run may import a library
    return fitted(seconds, max(records, 2), few=LEAST, least=LEAST)(records)
