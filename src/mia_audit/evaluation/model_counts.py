"""How many models? AUC and TPR of an attack with fewer other models than there are, for each of its likelihoods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.design import recognise
from mia_audit.attacks.run import Run, options_of
from mia_audit.attacks.subsets import counts, scored_with
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Int

    from mia_audit.evaluation.run import Source
    from mia_audit.signals.name import Cells, Member


MODEL_COUNTS = "model_counts"
"""The key of what `by_count` returns in the metadata of metrics.parquet."""


def examined(metrics: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Return attack, signal and likelihood of the runs to look at: those of the attack and signal with the largest mean AUC.

    Attacks without a likelihood are left out; empty where there are no others.
    """
    import polars as pl

    real = metrics.filter(~pl.col("null_control"), pl.col("likelihood") != "none", pl.col("auc").is_not_null())
    means = real.group_by("attack", "signal", "likelihood", maintain_order=True).agg(pl.col("auc").mean())
    if not len(means):
        return []
    attack, signal, *_ = means.row(int(means["auc"].arg_max() or 0))
    chosen = means.filter(pl.col("attack") == attack, pl.col("signal") == signal)
    return [(attack, signal, likelihood) for likelihood in chosen["likelihood"]]


def by_count(
    run: Run,
    readings: Sequence[Reading],
    member: Member,
    fprs: Sequence[float],
    options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return metrics over targets for every number of other models, 4, 8, 16 … and all: the targets are the same for each.

    A row has `attack`, `signal`, `likelihood`, `others` and, for every metric m that all targets have, `m_mean`, and the mean
    and standard error over targets of what all models add: `m_more` and `m_more_error`. Empty under designs whose
    correction needs all of the models, and where there are no more than four others.
    """
    numbers = counts(member.shape[1]) if recognise(member).independent else []
    attack, given = attacks[run.attack], options_of(run.attack, options)

    def score(models: Int[np.ndarray, " n"], here: Member) -> Cells:
        some = [Reading(one.signal, [values.T[models].T for values in one.queries]) for one in readings]
        return attack.score(some, here, run.likelihood, **given)

    by_number = {}
    for others in numbers:
        scores = scored_with(score, member, others, "how many models").astype(np.float32, copy=False)
        metrics = metrics_of_columns(scores, member, fprs)
        by_number[others] = {name: values for name, values in metrics.items() if not np.isnan(values).any()}
    key = {"attack": run.attack, "signal": run.signal, "likelihood": run.likelihood}
    return [key | {"others": others} | _parts(by_number[others], by_number[numbers[-1]]) for others in numbers]


def model_counts(
    metrics: pl.DataFrame, source: Source, fprs: Sequence[float], options: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of `by_count` for every run that is `examined`; none of signals that the source does not have."""
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
