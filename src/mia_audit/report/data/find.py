"""Compute an audit's findings from its metrics and training tables: strongest attacks, null control, lower bounds on ε."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mia_audit.attacks.persons import HEADLINE, NONE, PERSON
from mia_audit.evaluation.bounds_table import lower_bounds
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.summary import of_aggregate, of_drawn_unit, with_units
from mia_audit.report.data.findings import (
    CHANNELS,
    Estimate,
    Finding,
    Findings,
    Leak,
    LowerBound,
    NullControl,
    Worth,
    estimate_over,
    shadow_estimate,
)
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting

ATTACK = ("attack", "signal", "likelihood")
NULL_ALARM_LEVEL = 0.999
"""Level of the intervals by which the null control rejects an audit."""


def fpr_columns(metrics: pl.DataFrame) -> dict[float, str]:
    """Map the FPRs of a metrics table to their columns, smallest first."""
    columns = {
        float(match[1]): name for name in metrics.columns if (match := re.fullmatch(r"tpr_at_fpr_([0-9.e+-]+)", name))
    }
    return dict(sorted(columns.items()))


def headline_fpr(tables: Sequence[pl.DataFrame]) -> float | None:
    """Return the smallest FPR that every target of every setting resolves."""
    if not tables:
        return None
    tables = [table.filter(pl.col("auc").is_not_null()) for table in tables]
    shared = set.intersection(*(set(fpr_columns(table)) for table in tables))
    resolved = [fpr for fpr in shared if all(table[fpr_columns(table)[fpr]].null_count() == 0 for table in tables)]
    return min(resolved, default=None)


def candidates(metrics: pl.DataFrame, channel: str, likelihood: str) -> pl.DataFrame:
    """Return the rows of attacks on one channel, without null controls, each with the headline's likelihood or else its first one."""
    channels = {signal: read_signal(signal).channel for signal in metrics["signal"].unique()}
    wanted = [signal for signal, its_channel in channels.items() if its_channel == channel]
    rows = metrics.filter(~pl.col("null_control") & pl.col("signal").is_in(wanted) & pl.col("auc").is_not_null())
    known = pl.col("likelihood").is_in([likelihood]).any().over("attack", "signal")
    first = pl.col("likelihood").first().over("attack", "signal")
    return rows.filter(pl.col("likelihood") == pl.when(known).then(pl.lit(likelihood)).otherwise(first))


def leaks(metrics: pl.DataFrame, channel: str, headline: str, fpr: float | None, confidence: float) -> list[Leak]:
    """List the attacks on one channel of one setting, the largest mean AUC first."""
    rows = candidates(metrics, channel, headline).sort("target", maintain_order=True)
    column = fpr_columns(metrics)[fpr] if fpr is not None else None
    count = rows.select(pl.struct(ATTACK).n_unique()).item() if len(rows) else 0
    attacks = [
        _leak(tuple(map(str, key)), group, column, count, confidence)
        for key, group in rows.group_by(*ATTACK, maintain_order=True)
    ]
    return sorted(attacks, key=lambda leak: -leak.auc.mean())


def _leak(key: tuple[str, ...], group: pl.DataFrame, column: str | None, tried: int, confidence: float) -> Leak:
    attack, signal, likelihood = key
    over = {"auc": OverTargets.of(group, "auc", confidence)}
    if column:
        over["tpr"] = OverTargets.of(group, column, confidence)
    whole = {metric: one for metric, one in over.items() if one.count == len(group)}
    return Leak(
        attack=attack,
        signal=signal,
        likelihood=likelihood,
        targets=group["target"].to_numpy(),
        auc=group["auc"].to_numpy(),
        tpr=group[column].to_numpy() if column else np.full(len(group), math.nan),
        tried=tried,
        confidence=confidence,
        without={metric: one.without for metric, one in whole.items() if one.without is not None},
        sizes=(over["auc"].members, over["auc"].non_members),
        within={metric: one.within for metric, one in whole.items() if one.within is not None},
    )


def headline_unit(metrics: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """Return a setting's headline aggregate and its rows: those of persons if membership was drawn by person."""
    drawn = of_drawn_unit(metrics)
    aggregate = HEADLINE if PERSON in set(drawn["unit"]) else NONE
    return aggregate, of_aggregate(metrics, aggregate)


def _others(metrics: pl.DataFrame, aggregate: str) -> list[tuple[str, pl.DataFrame]]:
    """Return the aggregates other than the headline's, each with its rows; that of records comes first."""
    aggregates = with_units(metrics)["aggregate"].unique(maintain_order=True).to_list()
    order = [NONE, *(name for name in aggregates if name != NONE)]
    return [(one, of_aggregate(metrics, one)) for one in order if one in aggregates and one != aggregate]


def null_control(
    metrics: pl.DataFrame, strongest: dict[str, Leak], confidence: float, comparisons: int
) -> NullControl | None:
    """Summarise the null control of a setting; None where the metrics have none.

    `comparisons` is the number of headline intervals in the audit, for which `sound` is corrected: of 95 % intervals, one
    in twenty misses ½ by chance.
    """
    rows = metrics.filter(pl.col("null_control") & pl.col("auc").is_not_null())
    values = {
        tuple(map(str, key)): OverTargets.of(group, "auc", confidence)
        for key, group in rows.group_by(*ATTACK, maintain_order=True)
    }
    if not values:
        return None
    estimates = {key: estimate_over(aucs, confidence) for key, aucs in values.items()}
    headline = {channel: leak.key for channel, leak in strongest.items() if leak.key in estimates}
    return NullControl(
        intervals=len(estimates),
        holding=sum(not one.excludes(0.5) for one in estimates.values()),
        strongest=max(one.mean for one in estimates.values()),
        headline={channel: estimates[key] for channel, key in headline.items()},
        sound=not any(
            estimate_over(values[key], NULL_ALARM_LEVEL, comparisons).excludes(0.5) for key in headline.values()
        ),
    )


def lower_bound(metrics: pl.DataFrame, setting: Setting, confidence: float, delta: float) -> LowerBound:
    """Return the lower bound on ε from all attacks on a setting, at its own δ or else `delta`; one-run if the design allows it."""
    real = of_drawn_unit(metrics).filter(~pl.col("null_control"))
    delta = setting.delta or delta
    bounds = lower_bounds(real, delta, 1 - confidence, setting.design == "bernoulli")
    method = next(iter(bounds))
    tried = real.select(pl.struct(*ATTACK, "aggregate").n_unique()).item()
    return LowerBound(bounds[method], delta, method, tried)


def find(results: Results) -> Findings:
    """Compute the findings of all settings from their metrics and training tables."""
    spec = results.spec
    fpr = headline_fpr([headline_unit(metrics)[1] for metrics in results.metrics])
    findings = []
    for setting, every, shadows in zip(spec.settings, results.metrics, results.training, strict=True):
        aggregate, metrics = headline_unit(every)
        leaking = by_channel(metrics, fpr, spec.likelihood, spec.confidence)
        strongest = {channel: listed[0] for channel, listed in leaking.items()}
        findings.append(
            Finding(
                setting,
                leaking,
                _accuracy(shadows, "train_accuracy", spec.confidence),
                _accuracy(shadows, "test_accuracy", spec.confidence),
                shadows,
                null_control(metrics, strongest, spec.confidence, len(spec.settings) * len(strongest)),
                lower_bound(every, setting, spec.confidence, spec.delta),
                aggregate,
                tuple(_worth(setting, shadows, results.records_of_persons(setting))),
                results.mask_coverage(setting),
                {
                    one: by_channel(rows, fpr, spec.likelihood, spec.confidence)
                    for one, rows in _others(every, aggregate)
                },
            )
        )
    return Findings(fpr, findings, spec.confidence)


def _worth(setting: Setting, shadows: pl.DataFrame | None, counts: np.ndarray | None) -> Iterator[Worth]:
    """Yield what a guarantee per record means for persons with two, the median and the largest number of records."""
    if counts is None or shadows is None or not setting.private or not setting.delta:
        return
    from mia_audit.privacy.group import by_group_privacy, epsilon_of_person

    worst = shadows.sort("epsilon", descending=True).row(0, named=True)
    if worst.get("unit") == "person":
        return
    for records in sorted({2, int(np.median(counts)), int(counts.max())} & set(range(2, int(counts.max()) + 1))):
        if setting.claimed:
            yield Worth(records, *by_group_privacy(worst["epsilon"], setting.delta, records))
        else:
            terms = (worst["noise_multiplier"], worst["sampling_rate"], worst["steps"], setting.delta)
            yield Worth(records, epsilon_of_person(*terms, records), setting.delta)


def by_channel(metrics: pl.DataFrame, fpr: float | None, likelihood: str, confidence: float) -> dict[str, list[Leak]]:
    """Return the attacks on every channel, the strongest first; the channel `both` includes attacks that read only one of the two."""
    leaking = {channel: leaks(metrics, channel, likelihood, fpr, confidence) for channel in CHANNELS}
    if leaking["both"]:  # an attacker with access to both may ignore one of them
        able = [leak for channel in ("both", "outputs", "explanations") for leak in leaking[channel]]
        tried = [replace(leak, tried=len(able)) for leak in able]
        leaking["both"] = sorted(tried, key=lambda leak: -leak.auc.mean())
    return {channel: listed for channel, listed in leaking.items() if listed}


def _accuracy(shadows: pl.DataFrame | None, name: str, confidence: float) -> Estimate | None:
    accuracy = shadow_estimate(shadows, name, confidence)
    return accuracy.as_rate() if accuracy else None
