"""AUC and TPR of an attack by the number of other models, for each of its likelihoods that does not take long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.design import recognise
from mia_audit.attacks.engine.ratios import STAND_INS
from mia_audit.attacks.run import Run, options_of
from mia_audit.attacks.subsets import counts, scored_with
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.evaluation.roc import log_grid, mean_log_roc
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Int

    from mia_audit.evaluation.run import Source
    from mia_audit.signals.name import Cells, Member


MODEL_COUNTS = "model_counts"
"""The metadata key of metrics.parquet for the rows of `by_count`."""

ROC_POINTS = 61
"""FPRs at which a ROC curve is kept for every number of models."""


def examined(metrics: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Return attack, signal and likelihood of the runs to examine: all likelihoods of the attack and signal with the largest mean AUC.

    A likelihood that takes long is replaced by the one that stands in for it. Only attacks with likelihoods are
    considered. The result is empty if there are none.
    """
    import polars as pl

    real = metrics.filter(~pl.col("null_control"), pl.col("likelihood") != "none", pl.col("auc").is_not_null())
    means = real.group_by("attack", "signal", "likelihood", maintain_order=True).agg(pl.col("auc").mean())
    if not len(means):
        return []
    attack, signal, *_ = means.row(int(means["auc"].arg_max() or 0))
    chosen = means.filter(pl.col("attack") == attack, pl.col("signal") == signal)
    likelihoods = dict.fromkeys(
        one if STAND_INS.get(one) not in attacks[attack].likelihoods else STAND_INS[one] for one in chosen["likelihood"]
    )
    return [(attack, signal, likelihood) for likelihood in likelihoods]


def by_count(
    run: Run,
    readings: Sequence[Reading],
    member: Member,
    fprs: Sequence[float],
    options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return the mean metrics over all targets for each number of other models: 4, 8, 16 … and all.

    A row has `attack`, `signal`, `likelihood` and `others`. For every metric m that all targets have, it also has
    `m_mean`, and the gain from using all models, as mean and standard error over targets: `m_more` and `m_more_error`.
    `roc` has the mean TPR over targets at `ROC_POINTS` FPRs from 1/`non_members` to 1 (`roc.log_grid`), if every target
    has a member and a non-member. There are no rows under designs whose correction needs all models, or with at most
    four others.
    """
    numbers = counts(member.shape[1])
    by_number: dict[int, dict[str, np.ndarray]] = {}
    curves: dict[int, dict[str, Any]] = {}
    outside = (~member).sum(axis=0)
    grid = log_grid(max(int(outside.max()), 1), ROC_POINTS)
    for others, scores in scores_by_count(run, readings, member, numbers, options):
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
    run: Run,
    readings: Sequence[Reading],
    member: Member,
    numbers: Sequence[int],
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[int, Cells]]:
    """Yield each number of other models with the attack's scores from that many, [N records, K targets].

    Yield nothing under designs whose correction needs all of the models.
    """
    attack, given = attacks[run.attack], options_of(run.attack, options)

    def score(models: Int[np.ndarray, " n"], here: Member) -> Cells:
        some = [Reading(one.signal, one.queries, models) for one in readings]
        return attack.score(some, here, run.likelihood, **given)

    for others in numbers if recognise(member).independent else ():
        yield others, scored_with(score, member, others, "how many models").astype(np.float32, copy=False)


def model_counts(
    metrics: pl.DataFrame, source: Source, fprs: Sequence[float], options: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of `by_count` for every run that is `examined`, except those on signals that the source lacks."""
    known = {signal.name: signal for signal in source.signals}
    rows: list[dict[str, Any]] = []
    for attack, names, likelihood in examined(metrics):
        if set(names.split("+")) <= set(known):
            signals = tuple(known[name] for name in names.split("+"))
            readings = [Reading(signal, source.read(signal)) for signal in signals]
            rows += by_count(Run(attack, signals, likelihood, False), readings, source.member, fprs, options)
    return rows


def _parts(values: Mapping[str, np.ndarray], full: Mapping[str, np.ndarray]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for name in (name for name in values if name in full):
        more = full[name] - values[name]
        parts |= {
            f"{name}_mean": float(values[name].mean()),
            f"{name}_more": float(more.mean()),
            f"{name}_more_error": float(more.std(ddof=1) / len(more) ** 0.5),
        }
    return parts
