"""Open an audit's results, by its specification or by its provenance.json, and compute its findings.

Settings with too few models left are listed as gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.attacks.design import RECORDS
from mia_audit.attacks.io.outliers import CONSTANT
from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon_bounds import lower_bounds
from mia_audit.evaluation.files import headline_unit, metrics_table, of_aggregate, of_drawn_unit, with_units
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.run import FIRST_MODELS
from mia_audit.foreign_json import read_object
from mia_audit.report.findings import (
    CHANNELS,
    Finding,
    Findings,
    Leak,
    LowerBound,
    NullControl,
    Worth,
    estimate_over,
    fpr_columns,
    shadow_estimate,
)
from mia_audit.report.results import CANARIES, Guessing, Results
from mia_audit.report.spec import AuditedSetting, Gap, ReportedAudit
from mia_audit.report.statements import gap_sentence
from mia_audit.runtime.versions import refuse_other_version
from mia_audit.sections import STATED
from mia_audit.seeds import folder_of_seed
from mia_audit.signals.name import read_signal
from mia_audit.storage import open_table, read_frame
from mia_audit.storage.tables import diverged_models

PROVENANCE = "provenance.json"
DIGITS = 3
"""Significant digits of a computed ε, which is rounded up."""
ATTACK = ("attack", "signal", "likelihood")
NULL_ALARM_LEVEL = 0.999
"""Level of the intervals by which the null control rejects an audit."""


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
    over = {"auc": OverTargets.from_metrics(group, "auc", confidence)}
    if column:
        over["tpr"] = OverTargets.from_metrics(group, column, confidence)
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


def null_control(
    metrics: pl.DataFrame, strongest: dict[str, Leak], confidence: float, comparisons: int
) -> NullControl | None:
    """Summarise the null control of a setting; None where the metrics have none.

    `comparisons` is the number of headline intervals in the audit, for which `sound` is corrected: of 95 % intervals, one
    in twenty misses ½ by chance.
    """
    rows = metrics.filter(pl.col("null_control") & pl.col("auc").is_not_null())
    values = {
        tuple(map(str, key)): OverTargets.from_metrics(group, "auc", confidence)
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


def lower_bound(metrics: pl.DataFrame, setting: AuditedSetting, confidence: float, delta: float) -> LowerBound:
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
        # attacks on signals that are the same everywhere are left out, unless there are no others
        some = every.filter(~pl.col("signal").is_in(results.facts(setting).get(CONSTANT, [])))
        aggregate, metrics = headline_unit(every if some.is_empty() else some)
        leaking = by_channel(metrics, fpr, spec.likelihood, spec.confidence)
        if rows := results.facts(setting).get(FIRST_MODELS):
            leaking = _with_first(leaking, metrics_table(rows), fpr, spec.confidence)
        strongest = {channel: listed[0] for channel, listed in leaking.items()}
        worth = tuple(_worth(setting, shadows, results.records_of_persons(setting)))
        most = worth[-1] if worth and aggregate != RECORDS else None
        delta = most.delta if most and most.epsilon < math.inf else setting.delta
        findings.append(
            Finding(
                setting=setting,
                leaks=leaking,
                train_accuracy=shadow_estimate(shadows, "train_accuracy", spec.confidence),
                test_accuracy=shadow_estimate(shadows, "test_accuracy", spec.confidence),
                shadows=shadows,
                null=null_control(metrics, strongest, spec.confidence, len(spec.settings) * len(strongest)),
                bound=lower_bound(every, replace(setting, delta=delta), spec.confidence, spec.delta),
                aggregate=aggregate,
                worth=worth,
                mask_coverage=results.mask_coverage(setting),
                others={
                    other: by_channel(of_aggregate(every, other), fpr, spec.likelihood, spec.confidence)
                    for other in with_units(every)["aggregate"].unique(maintain_order=True)
                    if other != aggregate
                },
                learned=_learned(shadows, results.guessing(setting), spec.confidence),
            )
        )
    return Findings(fpr, findings, spec.confidence)


def _with_first(
    leaking: dict[str, list[Leak]], rows: pl.DataFrame, fpr: float | None, confidence: float
) -> dict[str, list[Leak]]:
    column = fpr_columns(rows)[fpr] if fpr is not None else None
    groups = rows.group_by(*ATTACK, maintain_order=True)
    by_first = {
        tuple(map(str, key)): _leak(tuple(map(str, key)), group, column, 1, confidence) for key, group in groups
    }
    return {
        channel: [replace(leak, by_first=by_first.get(leak.key)) for leak in listed]
        for channel, listed in leaking.items()
    }


def _learned(shadows: pl.DataFrame | None, chance: Guessing | None, confidence: float) -> bool:
    """Return whether models are better than guessing on their own training records; true where that is not known."""
    accuracy, loss = (shadow_estimate(shadows, f"train_{what}", confidence) for what in ("accuracy", "loss"))
    if chance is None or accuracy is None or math.isnan(accuracy.mean):
        return True
    better = loss is not None and loss.mean < LEARNED * chance.loss
    return better or accuracy.mean >= chance.accuracy + ABOVE


LEARNED, ABOVE = 0.98, 0.02
"""Models have learned if their loss on training records is below this share of that of guessing, or their accuracy above it by so much."""


def _worth(setting: AuditedSetting, shadows: pl.DataFrame | None, counts: np.ndarray | None) -> Iterator[Worth]:
    """Yield what a guarantee per record means for persons with two, the median and the largest number of records."""
    if counts is None or shadows is None or not setting.private or not setting.delta:
        return
    from mia_audit.privacy.accounting import by_group_privacy, epsilon_of_person

    worst = shadows.sort("epsilon", descending=True).row(0, named=True)
    if worst.get("unit") == "person":
        return
    # of models with equal ε, one with the largest or smallest training set is the worst
    by_size = shadows.sort("sampling_rate")
    models = [worst, by_size.row(0, named=True), by_size.row(-1, named=True)]
    for records in sorted({2, int(np.median(counts)), int(counts.max())} & set(range(2, int(counts.max()) + 1))):
        if setting.claimed:
            yield Worth(records, *by_group_privacy(worst["epsilon"], setting.delta, records))
        else:
            terms = {(one["noise_multiplier"], one["sampling_rate"], one["steps"]) for one in models}
            yield Worth(records, max(epsilon_of_person(*one, setting.delta, records) for one in terms), setting.delta)


def by_channel(metrics: pl.DataFrame, fpr: float | None, likelihood: str, confidence: float) -> dict[str, list[Leak]]:
    """Return the attacks on every channel, the strongest first; the channel `both` includes attacks that read only one of the two."""
    leaking = {channel: leaks(metrics, channel, likelihood, fpr, confidence) for channel in CHANNELS}
    if leaking["both"]:  # an attacker with access to both may ignore one of them
        able = [leak for channel in ("both", "outputs", "explanations") for leak in leaking[channel]]
        tried = [replace(leak, tried=len(able)) for leak in able]
        leaking["both"] = sorted(tried, key=lambda leak: -leak.auc.mean())
    return {channel: listed for channel, listed in leaking.items() if listed}


def audited(root: Path, spec: ReportedAudit) -> Results:
    """Open an audit's results, with the settings that could not be attacked moved to the spec's `gaps`.

    If a setting states a noise multiplier, its ε is the largest that any of its models spent. Raises UserError if no
    setting is left.
    """
    spec = spec.model_copy(update={"settings": tuple(_computed(root, setting) for setting in spec.settings)})
    paths = {setting: root / setting.path / "metrics.parquet" for setting in spec.settings}
    gaps = tuple(
        Gap(setting, models, attacked=open_table(path, "metrics").metadata.num_rows > 0)
        for setting, path in paths.items()
        if (models := diverged_models(path, "metrics"))
    )
    lost = [gap.setting for gap in gaps if not gap.attacked]
    left = tuple(setting for setting in spec.settings if setting not in lost)
    if not left and spec.settings:
        raise UserError(f"{root}: no setting has enough models left: {' '.join(map(gap_sentence, gaps))}")
    return Results(root, spec.model_copy(update={"settings": left, "gaps": gaps}))


def _computed(root: Path, setting: AuditedSetting) -> AuditedSetting:
    if not setting.epsilon.startswith(STATED) or setting.no_guarantee:
        return setting
    spent = read_frame(root / setting.path / "training.parquet", "training")["epsilon"].drop_nulls()
    if spent.is_empty():
        return setting
    above = Context(DIGITS, ROUND_CEILING).create_decimal(repr(float(spent.to_numpy().max())))
    return replace(setting, epsilon=f"{above.normalize():f}", budget=setting.epsilon)


def read_provenance(root: Path, seeds: bool = False) -> dict[str, Any]:
    """Return the content of a finished audit's provenance.json; UserError where it is missing, damaged or of another version.

    That of an audit of several seeds is accepted with `seeds`.
    """
    refuse_other_version(root)
    content = read_object(root / PROVENANCE, "the results of a finished audit, results/NAME")
    if "seeds" in content and seeds:
        return content
    if "seeds" in content:
        raise UserError(
            f"{root}: an audit of several seeds; name the folder of one, such as {root / folder_of_seed(content['seeds'][0])}"
        )
    if not isinstance(content.get("settings"), list):
        raise UserError(f"{root / PROVENANCE}: damaged; expected the provenance of a report")
    return content


def finished(root: Path) -> Results:
    """Open the results of a finished audit; UserError if there are none, or no setting was attacked."""
    sources = read_provenance(root)
    try:
        config = sources.get("config") or {}
        settings = tuple(_setting(root, one) for one in [*sources["settings"], *sources.get("not_attacked", [])])
        spec = ReportedAudit(
            audit=str(sources["audit"]),
            settings=settings,
            title=config.get("report", {}).get("title") or str(sources["audit"]),
            likelihood=str(config.get("attacks", {}).get("likelihoods", ["pooled"])[0]),
            confidence=float(config.get("evaluation", {}).get("confidence", 0.95)),
            config=config,
            config_hash=sources.get("config_sha256"),
            canaries=tuple(
                one.path for one in settings if f"{one.path}/{CANARIES}" in sources.get("inputs_sha256", {})
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UserError(
            f"{root / PROVENANCE}: damaged ({type(error).__name__}: {error}); expected what an audit wrote"
        ) from None
    if not settings:
        raise UserError(f"{root}: no setting was attacked; expected the results of an audit with attacks")
    return audited(root, spec)


def _setting(root: Path, stated: Mapping[str, Any]) -> AuditedSetting:
    path = Path(str(stated["path"]))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a setting outside of the results: {path}")
    return AuditedSetting(
        dataset=str(stated["dataset"]),
        architecture=str(stated["architecture"]),
        mechanism=str(stated["mechanism"]),
        epsilon=str(stated.get("nominal_epsilon", stated["epsilon"])),
        budget=str(stated.get("budget", "")),
        private=bool(stated["private"]),
        delta=stated["delta"],
        accountant=stated["accountant"],
        clipping=stated["clipping"],
        trained=(root / path / "training.parquet").exists(),
        design=str(stated.get("design", "")),
        explained=stated.get("explained"),
        folder=str(stated["path"]),
        no_guarantee=str(stated.get("no_guarantee", "")),
    )
