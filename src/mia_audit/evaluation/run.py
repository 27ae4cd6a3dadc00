"""Scores and metrics of all runs of an audit, and what is repeated for them: without single models, with fewer models, in halves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import AttackRun, Held, attacks, scores_of
from mia_audit.attacks.design import (
    HEADLINE,
    RECORDS,
    aggregates_of,
    counts,
    drawn_records,
    in_unit,
    recognise,
    scored_with,
)
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.errors import UserError
from mia_audit.evaluation.exposure import FEWEST_MODELS, HALVES, Halves
from mia_audit.evaluation.files import Scored, headline_unit, metric_rows
from mia_audit.evaluation.intervals import Rescored, metrics_without, quick, scored_without
from mia_audit.evaluation.metrics import log_grid, mean_log_roc, metrics_of_columns
from mia_audit.seeds import generator
from mia_audit.signals.name import Reading, Signal, read_signal

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.pools.persons import Persons
    from mia_audit.signals.name import Cells, Member


class SignalSource(Protocol):
    """A source of membership and signals: a signals.parquet or matrix files."""

    signals: list[Signal]
    member: Bool[np.ndarray, "N K"]
    record: Int[np.ndarray, " N"]
    models: int
    target: Int[np.ndarray, " K"]
    persons: Persons | None

    def read(self, signal: Signal) -> list[Float[np.ndarray, "N K"]]:
        """Return a signal's values for every query."""


class Evaluated(NamedTuple):
    """A run's scores of records as stored (float32), the membership for their evaluation, [N records, K targets], and its metrics."""

    run: AttackRun
    member: Bool[np.ndarray, "N K"]
    scores: Float[np.ndarray, "N K"]
    rows: list[dict[str, Any]]


def score_and_evaluate(
    runs: Sequence[AttackRun],
    source: SignalSource,
    null: Bool[np.ndarray, "N K"],
    fprs: Sequence[float],
    confidence: float,
    threads: int = 1,
) -> Iterator[Evaluated]:
    """Yield the scores and metrics of all runs in their order, working on as many signals at a time as there are threads."""

    def work(group: list[AttackRun]) -> list[Evaluated]:
        judged = []
        for run, readings, member, scores in scores_of(group, source.read, source.member, null):
            stored = scores.astype(np.float32, copy=False)
            rescored = scored_without(run, readings, member)
            rows = []
            for aggregate in aggregates_of(source.persons):
                rows += _judged(
                    run,
                    source,
                    member,
                    scores=stored,
                    aggregate=aggregate,
                    rescored=rescored,
                    fprs=fprs,
                    confidence=confidence,
                )
            judged.append(Evaluated(run, member, stored, rows))
        return judged

    groups = [list(group) for _, group in groupby(runs, key=lambda run: run.signals)]
    # With threads of its own, BLAS takes three times the CPU time for products of small matrices.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[list[Evaluated]]] = deque()
        try:
            for group in groups:
                ahead.append(pool.submit(work, group))
                if len(ahead) >= threads:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _judged(
    run: AttackRun,
    source: SignalSource,
    member: Member,
    scores: Cells,
    aggregate: str,
    rescored: Rescored | None,
    fprs: Sequence[float],
    confidence: float,
) -> list[dict[str, Any]]:
    """Return the rows of metrics.parquet for scores of records, as they are or aggregated to scores of persons."""
    key = (run.attack, run.signal, run.likelihood, run.null_control)
    target, persons = source.target[: member.shape[1]], source.persons
    scored = Scored(key, target, source.record, member, scores)
    if persons is not None and aggregate != RECORDS:
        inside, of_persons = persons.gathered(member, "membership"), in_unit(scores, persons, aggregate)
        record = np.arange(len(persons))
        scored = Scored(
            key=key,
            target=target,
            record=record,
            member=inside,
            score=of_persons.astype(np.float32),
            aggregate=aggregate,
            person=persons.ids,
        )
    without = (
        metrics_without(rescored, scored.score, member, fprs=fprs, persons=persons, aggregate=aggregate)
        if rescored
        else None
    )
    return metric_rows(scored, fprs, confidence, without)


class FurtherScorings:
    """Repeats attacks, each time without one model. The last attack's signals and scores are kept for the scores of persons."""

    def __init__(self, path: Path, leave_out: Sequence[int] = ()) -> None:
        """Open a signals.parquet, without the models to leave out."""
        self.file = SignalsFile(path, leave_out)
        self._path = path
        self._known = {signal.name: signal for signal in self.file.signals}
        self._held = Held(self.file.read)
        self._last: tuple[AttackRun, Rescored | None] | None = None

    def persons(self, scored: Scored) -> Persons | None:
        """Return the person of every record if these are scores of persons, else None."""
        return None if scored.aggregate == RECORDS else self.file.persons

    def of(self, scored: Scored) -> Rescored | None:
        """Return the scores of records by an attack that is repeated without single models; None if there are none, or
        the attack reads other signals.
        """
        attack, names, likelihood, null_control = scored.key
        run = _run_on(names, self._known, attack, likelihood, null_control)
        persons = self.persons(scored)
        unit = self.file.member if persons is None else persons.gathered(self.file.member, str(self._path))
        if run is None or unit.shape != scored.member.shape:
            return None
        if self._last is None or self._last[0] != run:
            self._last = None
            readings = self._held.of(run.signals, run.signals)
            self._last = run, scored_without(run, readings, self.file.member)
        return self._last[1]


MODEL_COUNTS = "model_counts"
"""The metadata key of metrics.parquet for the rows of `by_count`."""

ROC_POINTS = 61
"""FPRs at which a ROC curve is kept for every number of models."""

COUNTED = 1 << 17
"""Largest number of records that `by_count` reads, drawn at random; pools of persons are read whole."""


def examined(metrics: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Return attack, signal and likelihood of the runs to examine: all likelihoods of the attack and signal with the largest mean AUC.

    A likelihood that takes long is replaced by the one that stands in for it. Only attacks with likelihoods are
    considered. The result is empty if there are none.
    """
    means = ranked(metrics).filter(pl.col("likelihood") != "none")
    if not len(means):
        return []
    attack, signal, *_ = means.row(0)
    chosen = means.filter(pl.col("attack") == attack, pl.col("signal") == signal).sort("place")
    likelihoods = dict.fromkeys(quick(attack, one) for one in chosen["likelihood"])
    return [(attack, signal, likelihood) for likelihood in likelihoods]


def ranked(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return attack, signal, likelihood and mean AUC of all runs on the true membership, the largest first, and their `place` in the table.

    The unit is that for which membership was drawn.
    """
    real = headline_unit(metrics)[1].filter(~pl.col("null_control"), pl.col("auc").is_not_null())
    means = real.group_by("attack", "signal", "likelihood", maintain_order=True).agg(pl.col("auc").mean())
    return means.with_columns(place=pl.int_range(pl.len())).sort("auc", descending=True, maintain_order=True)


def by_count(
    run: AttackRun,
    readings: Sequence[Reading],
    member: Member,
    fprs: Sequence[float],
    place: int | None = None,
    persons: Persons | None = None,
) -> list[dict[str, Any]]:
    """Return the mean metrics over all targets, or those of the target at a `place`, for each number of other models: 4, 8, 16 … and all.

    With `persons`, the metrics are those of persons, by the headline's aggregate. Without, at most `COUNTED` records are
    read. A row has `attack`, `signal`, `likelihood` and `others`. For every metric m that all targets have, it also has
    `m_mean`, and the gain from using all models, as mean and standard error over targets: `m_more` and `m_more_error`.
    `roc` has the mean TPR over targets at `ROC_POINTS` FPRs from 1/`non_members` to 1 (`log_grid`), if every target
    has a member and a non-member. There are no rows under designs whose correction needs all models, or with at most
    four others.
    """
    if persons is None and (records := len(member)) > COUNTED:
        rows = drawn_records(records, COUNTED, "records of numbers of models")
        readings = [replace(one, queries=[values[rows] for values in one.queries]) for one in readings]
        member = np.asfortranarray(member[rows])
    numbers = counts(member.shape[1])
    by_number: dict[int, dict[str, np.ndarray]] = {}
    curves: dict[int, dict[str, Any]] = {}
    whole, only = member, slice(None) if place is None else slice(place, place + 1)
    member = (member if persons is None else persons.gathered(member, "membership"))[:, only]
    outside = (~member).sum(axis=0)
    grid = log_grid(max(int(outside.max()), 1), ROC_POINTS)
    for others, scores in scores_by_count(run, readings, whole, numbers):
        scores = in_unit(scores[:, only], persons, HEADLINE).astype(np.float32, copy=False)
        metrics = metrics_of_columns(scores, member, fprs)
        by_number[others] = {name: values for name, values in metrics.items() if not np.isnan(values).any()}
        curves[others] = {}
        if outside.all() and member.any(axis=0).all() and not np.isnan(scores).any():
            mean, _ = mean_log_roc(zip(scores.T, member.T, strict=True), grid)
            curves[others] = {"non_members": int(outside.max()), "roc": [round(float(rate), 5) for rate in mean]}
        del scores  # free these scores before the next ones are computed
    key = {"attack": run.attack, "signal": run.signal, "likelihood": run.likelihood}
    last = by_number[max(by_number)] if by_number else {}
    return [key | {"others": others} | _parts(by_number[others], last) | curves[others] for others in by_number]


def scores_by_count(
    run: AttackRun,
    readings: Sequence[Reading],
    member: Member,
    numbers: Sequence[int],
) -> Iterator[tuple[int, Cells]]:
    """Yield each number of other models with the attack's scores from that many, [N records, K targets].

    Yield nothing under designs whose correction needs all of the models.
    """
    attack = attacks[run.attack]

    def score(models: Int[np.ndarray, " n"], here: Member) -> Cells:
        some = [Reading(one.signal, one.queries, models) for one in readings]
        return attack.score(some, here, run.likelihood)

    for others in numbers if recognise(member).independent else ():
        yield others, scored_with(score, member, others, "how many models").astype(np.float32, copy=False)


def model_counts(
    metrics: pl.DataFrame,
    source: SignalSource,
    fprs: Sequence[float],
    place: int | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of `by_count` for every run that is `examined`, except those on signals that the source lacks."""
    known = {signal.name: signal for signal in source.signals}
    rows: list[dict[str, Any]] = []
    for attack, names, likelihood in examined(metrics):
        if run := _run_on(names, known, attack, likelihood):
            readings = [Reading(signal, source.read(signal)) for signal in run.signals]
            rows += by_count(run, readings, source.member, fprs=fprs, place=place, persons=source.persons)
    return rows


FIRST_MODELS = "first_models"
"""The metadata key of metrics.parquet for the rows of `by_first`."""


def by_first(
    models: int, metrics: pl.DataFrame, file: SignalsFile, fprs: Sequence[float], confidence: float
) -> list[dict[str, Any]]:
    """Return rows of metrics.parquet for the first models alone, as targets and as shadow models.

    They are for comparisons with settings that have only so many: more shadow models make an attack stronger. Of every
    attack with each likelihood there are those on the signals of every channel that have the largest mean AUC with all
    models.
    """
    count = int((file.target < models).sum())
    first, member = np.arange(count), file.member[:, :count]
    known = {signal.name: signal for signal in file.signals}
    aggregate = headline_unit(metrics)[0]
    strongest: dict[tuple[str, str, str], AttackRun] = {}
    for attack, names, likelihood, *_ in ranked(metrics).iter_rows():
        if run := _run_on(names, known, attack, likelihood):
            strongest.setdefault((attack, likelihood, read_signal(names).channel), run)
    rows = []
    for run in strongest.values():
        readings = [Reading(signal, file.read(signal), first) for signal in run.signals]
        scores = attacks[run.attack].score(readings, member, run.likelihood).astype(np.float32, copy=False)
        rescored = scored_without(run, readings, member)
        rows += _judged(
            run, file, member, scores=scores, aggregate=aggregate, rescored=rescored, fprs=fprs, confidence=confidence
        )
    return rows


def _parts(values: Mapping[str, np.ndarray], full: Mapping[str, np.ndarray]) -> dict[str, float | None]:
    parts: dict[str, float | None] = {}
    for name in (name for name in values if name in full):
        more = full[name] - values[name]
        parts |= {
            f"{name}_mean": float(values[name].mean()),
            f"{name}_more": float(more.mean()),
            f"{name}_more_error": float(more.std(ddof=1) / len(more) ** 0.5) if len(more) > 1 else None,
        }
    return parts


def in_halves(metrics: pl.DataFrame, source: SignalSource, fprs: Sequence[float]) -> dict[str, Any]:
    """Return, as metadata of metrics.parquet, the counts of `Halves` by the strongest attack that does not take long.

    Membership must be independent between models, and each half have enough of them; the result is empty otherwise.
    """
    member, models, persons = source.member, source.models, source.persons
    run = _strongest(metrics, {signal.name: signal for signal in source.signals})
    if run is None or models < FEWEST_MODELS or not recognise(member).independent:
        return {}
    attack, likelihood = attacks[run.attack], quick(run.attack, run.likelihood)
    readings = [Reading(signal, source.read(signal)) for signal in run.signals]
    order, parts = generator("halves of models", models).permutation(models), []
    for half in (np.sort(order[: models // 2]), np.sort(order[models // 2 :])):
        some = [Reading(one.signal, one.queries, half) for one in readings]
        inside = np.asfortranarray(member[:, half])
        try:
            scores = attack.score(some, inside, likelihood)
        except UserError:  # too few models for this likelihood
            return {}
        if persons is not None:
            scores, inside = in_unit(scores, persons, HEADLINE), persons.gathered(inside, "membership")
        parts.append((scores, inside))
    aggregate = RECORDS if persons is None else HEADLINE
    return {HALVES: Halves.from_scores((run.attack, run.signal, run.likelihood), aggregate, parts, fprs).packed()}


def _strongest(metrics: pl.DataFrame, known: Mapping[str, Signal]) -> AttackRun | None:
    """Return the run with the largest mean AUC, of those that can be repeated in reasonable time."""
    for attack, names, likelihood, *_ in ranked(metrics).iter_rows():
        able = attack in attacks
        able = able and (attacks[attack].repeatable or quick(attack, likelihood) in attacks[attack].pairwise)
        if able and (run := _run_on(names, known, attack, likelihood)):
            return run
    return None


def _run_on(
    names: str, known: Mapping[str, Signal], attack: str, likelihood: str, null_control: bool = False
) -> AttackRun | None:
    """Return the run of an attack on signals, whose names are joined by +; None unless all are known."""
    if not set(names.split("+")) <= set(known):
        return None
    return AttackRun(attack, tuple(known[name] for name in names.split("+")), likelihood, null_control)
