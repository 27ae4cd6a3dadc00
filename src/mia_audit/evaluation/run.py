"""Scores and metrics of all runs of an audit, computed for a few signals at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.run import Run, scores_of
from mia_audit.evaluation.files import Scored, metric_rows
from mia_audit.evaluation.leave_outs import without_each
from mia_audit.signals.name import Signal

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Source(Protocol):
    """A source of membership and signals: a signals.parquet or matrix files."""

    signals: list[Signal]
    member: Bool[np.ndarray, "N K"]
    record: Int[np.ndarray, " N"]
    models: int

    def read(self, signal: Signal) -> list[Float[np.ndarray, "N K"]]:
        """Return a signal's values for every query."""


class Evaluated(NamedTuple):
    """A run's scores as stored (float32), the membership for their evaluation, [N records, K targets], and its metrics."""

    run: Run
    member: Bool[np.ndarray, "N K"]
    scores: Float[np.ndarray, "N K"]
    rows: list[dict[str, Any]]


def score_and_evaluate(
    runs: Sequence[Run],
    source: Source,
    null: Bool[np.ndarray, "N K"],
    fprs: Sequence[float],
    confidence: float,
    threads: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Evaluated]:
    """Yield the scores and metrics of all runs in their order, working on as many signals at a time as there are threads.

    `options` are the values of the keys that attacks declare.
    """

    def work(group: list[Run]) -> list[Evaluated]:
        judged = []
        for run, readings, member, scores in scores_of(group, source.read, source.member, null, options):
            stored = scores.astype(np.float32, copy=False)
            key = (run.attack, run.signal, run.likelihood, run.null_control)
            scored = Scored(key, np.arange(source.models), source.record, member, stored)
            without = without_each(run, readings, member, stored, fprs, options)
            judged.append(Evaluated(run, member, stored, metric_rows(scored, fprs, confidence, without)))
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
