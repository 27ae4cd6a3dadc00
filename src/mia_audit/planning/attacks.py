"""Time the attacks on a setting and their evaluation on this machine, with the audit's own code on random signals.

Time work on this machine: in processor seconds, which other processes do not affect, or in a GPU's seconds.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attacks, scores_of
from mia_audit.attacks.catalogue import plan as attack_runs
from mia_audit.attacks.design import counts
from mia_audit.config.expand import families_of, settings
from mia_audit.evaluation.files import Scored, metric_rows
from mia_audit.evaluation.intervals import without_each
from mia_audit.explain.vectors import numbers
from mia_audit.seeds import generator
from mia_audit.signals.compute import STEM
from mia_audit.signals.families import columns
from mia_audit.signals.name import FIT_ERROR, SUMMARIES, Reading, is_signal, read_signal

if TYPE_CHECKING:
    from mia_audit.attacks.catalogue import AttackRun
    from mia_audit.config.schema import Audit
    from mia_audit.planning.sizes import Size

LONG = 0.1
"""No larger run follows a timed run of this many seconds, unless the caller says otherwise."""

PARSED = 0.028
"""Processor seconds to parse the source of `argparse` on the machine that gave the constants of `estimate`."""


def pace() -> float:
    """Return this machine's processor time relative to that of the machine that gave the constants of `estimate`."""
    source = inspect.getsource(argparse)
    return min(_once(lambda: ast.parse(source), time.process_time) for _ in range(5)) / PARSED


def extrapolated(
    work: Callable[[int], Callable[[], object]],
    most: int,
    least: int = 1,
    clock: Callable[[], float] = time.process_time,
    empty: bool = False,
    long: float = LONG,
) -> float:
    """Return the seconds of work on `most` records: runs of `least`, 4, 16 … times `least` records are timed until one is long.

    A line through the last two gives the rest. `work` prepares a run, which is not timed. With `empty`, a first run that
    is long is compared with a run without records, as a private step has a long set-up.
    """

    def seconds(count: int) -> float:
        run = work(count)
        taken = _once(run, clock)
        return taken if taken > 5 * LONG and warm else min(taken, _once(run, clock))

    warm, before = False, (0, 0.0)
    count = min(least, most)
    taken = seconds(count)
    warm = True
    while count < most and taken < long:
        before = count, taken
        count = min(4 * count, most)
        taken = seconds(count)
    if count == most:
        return taken
    if empty and not before[0]:
        before = 0, seconds(0)
    each = min(max(taken - before[1], 0.0) / (count - before[0]), taken / count)
    return taken + each * (most - count)


def _once(run: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


LEAST_SECONDS = 128
"""Number of records in the smallest timed run."""


@dataclass(frozen=True)
class Attacked:
    """The signals of a setting's models, or of the explanation sets of a black box: number of columns, runs of attacks, and size.

    `vector` is the length of a vector of attributions, and `vectors` that of all of a record's vectors.
    """

    columns: int
    runs: Sequence[AttackRun]
    records: int
    models: int
    vector: int = 0
    vectors: int = 0


def attacked(audit: Audit, sizes: Mapping[str, Size]) -> Iterator[Attacked]:
    """Yield all signals that an audit computes and attacks."""

    def of(columns: Sequence[str], dataset: str, models: int) -> Attacked:
        signals = [read_signal(name) for name in columns if is_signal(name)]
        runs = attack_runs(audit.attacks.methods, signals, audit.attacks.likelihoods)
        vectors = sum(signal.is_vector for signal in signals)
        vector = numbers(sizes[dataset].shape, audit.explainers.model_dump()) if vectors else 0
        return Attacked(
            columns=len(columns) - vectors,
            runs=runs,
            records=sizes[dataset].records,
            models=models,
            vector=vector,
            vectors=vectors * vector,
        )

    for setting in settings(audit):
        if setting.trained:
            families = families_of(audit)[setting.architecture].items()
            every = [name for family, options in families for name in columns(family, options)]
            yield of(every, setting.dataset, audit.number_of_models(setting.mechanism))
    for dataset, study in audit.private_explanations.items():
        for _ in range(len(study.black_boxes) * len(study.attacked)):
            every = [FIT_ERROR, *(f"{STEM}_{summary}" for summary in SUMMARIES)]
            yield of(every, dataset, audit.membership.models)


def attack_seconds(every: Sequence[Attacked], fprs: Sequence[float]) -> dict[str, float]:
    """Return the processor seconds to attack signals and to evaluate the scores, by rule; equal work is timed once.

    The strongest attack, which is repeated for several numbers of models, is assumed to take as long as the first one that
    has a likelihood.
    """
    known: dict[tuple[object, ...], dict[str, float]] = {}
    total = {"attack": 0.0, "evaluate": 0.0}
    for one in every:
        ratios = [run for run in one.runs if run.likelihood != "none" and not run.null_control]
        fewer = [run for run in ratios if (run.attack, run.signals) == (ratios[0].attack, ratios[0].signals)]
        for run in one.runs:
            key = (attacks[run.attack].score, run.likelihood, len(run.signals), one.records, one.models, one.vector)
            if key not in known:
                known[key] = _seconds(run, one.records, one.models, fprs, one.vector)
            cost = known[key]
            total["attack"] += cost["score"]
            total["evaluate"] += cost["evaluate"]
            if not run.null_control:
                total["evaluate"] += cost["rescore"]
            if run in fewer:  # `evaluate` repeats it with fewer models
                total["evaluate"] += len(counts(one.models)) * (cost["score"] + cost["evaluate"])
    return total


def _seconds(run: AttackRun, records: int, models: int, fprs: Sequence[float], vector: int) -> dict[str, float]:
    """Return the seconds of a run of an attack, of its evaluation, and of its repetitions without some of the models."""

    def of(stage: Callable[[list[Reading], np.ndarray], object]) -> float:
        def work(count: int) -> Callable[[], object]:
            random = generator(0, "plan", count, models)
            member = count // 2 > random.random((models, count)).argsort(axis=1).T
            shapes = [(models, count, vector) if one.is_vector else (models, count) for one in run.signals]
            drawn = (np.exp(random.standard_normal(one).swapaxes(0, 1)).astype(np.float32) for one in shapes)
            readings = [Reading(signal, [values]) for signal, values in zip(run.signals, drawn, strict=True)]
            return lambda: stage(readings, member)

        return extrapolated(work, max(records, 2), LEAST_SECONDS, long=1.0)

    def score(readings: list[Reading], member: np.ndarray) -> object:
        return list(scores_of([run], {one.signal: one.queries for one in readings}.__getitem__, member, member))

    def evaluate(readings: list[Reading], member: np.ndarray) -> object:
        key = (run.attack, run.signal, run.likelihood, run.null_control)
        values = readings[0].queries[0]
        scores = values if values.ndim == 2 else np.ascontiguousarray(values[:, :, 0])
        scored = Scored(key, np.arange(models), np.arange(len(member)), member, scores)
        return metric_rows(scored, fprs, confidence=0.95)

    return {
        "score": of(score),
        "evaluate": of(evaluate),
        "rescore": of(lambda readings, member: without_each(run, readings, member, readings[0].queries[0], fprs)),
    }
