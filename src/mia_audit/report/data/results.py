"""The files of an audit, each read once, for its tables, figures and page.

Accuracies that a model has to beat: that of guessing, and that of the public model from which its training started.

Compute an audit's findings from its metrics and training tables: strongest attacks, null control, lower bounds on ε.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from mia_audit.attacks.design import CORRECTION, PERSON, RECORDS
from mia_audit.attacks.io.outliers import CONSTANT
from mia_audit.attacks.io.parquet import GIVEN
from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon_bounds import lower_bounds
from mia_audit.evaluation.exposure import HALVES, Estimated, Halves, estimated
from mia_audit.evaluation.files import (
    Scored,
    headline_unit,
    metrics_table,
    of_aggregate,
    of_drawn_unit,
    read_scores,
    summarise,
    with_units,
)
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.run import FIRST_MODELS, MODEL_COUNTS
from mia_audit.explanation_metrics.summary import per_model
from mia_audit.foreign_json import parse_object
from mia_audit.pools.store import read_persons
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
from mia_audit.report.data.spec import Setting, Spec
from mia_audit.signals.name import read_signal
from mia_audit.storage import given_digest, open_table, read_frame, read_table, table_metadata

if TYPE_CHECKING:
    from mia_audit.report.data.private import Studied
    from mia_audit.report.data.spec import Setting

PUBLIC = "public.json"
"""The file of a public model's accuracies, in the folder of its data set and architecture."""
MODEL = ("architecture.json", "public.safetensors", "start.safetensors")
"""The files from which all models of that folder start."""


class Guessing(NamedTuple):
    """The accuracy of always predicting the most frequent class, and the mean loss (nats) of predicting the classes' shares."""

    accuracy: float
    loss: float


def read_guessing(path: Path) -> Guessing | None:
    """Return what guessing achieves on the records of a pool's records.parquet; None where there is no such file."""
    if not path.exists():
        return None
    counts = np.unique(read_table(path, "records", ["label"])["label"].to_numpy(), return_counts=True)[1]
    shares = counts / counts.sum()
    return Guessing(float(shares.max()), float(-(shares * np.log(shares)).sum()))


class Start(NamedTuple):
    """Accuracy and loss of a public model on the audited records, none of which it was trained on."""

    accuracy: float
    loss: float
    public_records: int


def read_start(path: Path) -> Start | None:
    """Read a public model's accuracy and loss; None if there is no such model, or it was not measured on audited records.

    Raises UserError for a damaged file.
    """
    try:
        values = parse_object(path.read_text(encoding="utf-8"))
        if "test_accuracy" not in values:
            return None
        return Start(float(values["test_accuracy"]), float(values["test_loss"]), int(values["records"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged ({type(error).__name__}); expected what public pre-training wrote") from None


@dataclass(frozen=True)
class Results:
    """The files of an audit below the folder `root`, each read when it is first needed."""

    root: Path
    spec: Spec

    @cached_property
    def metrics(self) -> list[pl.DataFrame]:
        """metrics.parquet of every setting, in the order of the spec."""
        return [read_frame(self._file(setting, "metrics.parquet"), "metrics") for setting in self.spec.settings]

    @cached_property
    def summaries(self) -> list[pl.DataFrame]:
        """The metrics of every setting summarised over targets, in the order of the spec."""
        return [summarise(metrics, self.spec.confidence) for metrics in self.metrics]

    @cached_property
    def design_corrections(self) -> list[str]:
        """The membership designs, over all settings, for which attacks were corrected."""
        facts = map(self.facts, self.spec.settings)
        return list(dict.fromkeys(known[CORRECTION] for known in facts if CORRECTION in known))

    @cached_property
    def model_counts(self) -> list[list[dict[str, Any]]]:
        """Metrics with fewer other models, by setting (`evaluation.model_counts`)."""
        return [self.facts(setting).get(MODEL_COUNTS, []) for setting in self.spec.settings]

    @cached_property
    def evenly_mixed(self) -> list[tuple[str, dict[str, Any]]]:
        """The data set, and the row of shares.csv, of every setting whose locally linear maps are mixed evenly."""
        tables = ((path.parent.name, pl.read_csv(path)) for path in self._shares())
        return [(dataset, row) for dataset, table in tables for row in table.filter("mixed_evenly").to_dicts()]

    def _shares(self) -> list[Path]:
        return sorted((self.root / "figures" / "filters").glob("*/shares.csv"))

    def facts(self, setting: Setting) -> dict[str, Any]:
        """Return the metadata of a setting's metrics.parquet."""
        return table_metadata(self._file(setting, "metrics.parquet"), "metrics")

    def groups(self, setting: Setting) -> tuple[pl.DataFrame, dict[str, dict[str, int]]]:
        """Return the metrics of a setting's groups, and by aggregate and column the number of groups that were too small."""
        path = self._file(setting, "groups.parquet")
        return read_frame(path, "group_metrics"), table_metadata(path, "group_metrics").get("small", {})

    @cached_property
    def given(self) -> dict[str, dict[str, str]]:
        """The SHA-256 of the files that no audit wrote, by setting and by file name."""
        known = {}
        for setting in self.spec.settings:
            path = self._file(setting, "metrics.parquet")
            if digests := self.facts(setting).get(GIVEN, {}) | given_digest(path):
                known[setting.path] = digests
        return known

    @cached_property
    def training(self) -> list[pl.DataFrame | None]:
        """Every setting's training.parquet, one row per shadow (its last epoch); None if training is unknown."""
        return [
            read_frame(self._file(setting, "training.parquet"), "training")
            .sort("shadow", "epoch")
            .group_by("shadow", maintain_order=True)
            .last()
            if setting.trained or (self.root / setting.path / "training.parquet").exists()
            else None
            for setting in self.spec.settings
        ]

    @cached_property
    def starts(self) -> dict[tuple[str, str], Start]:
        """The public models from which trainings started, with their accuracy and loss, by dataset × architecture."""
        starts = {group: read_start(self.root.joinpath(*group, PUBLIC)) for group in self.spec.groups}
        return {group: start for group, start in starts.items() if start}

    def guessing(self, setting: Setting) -> Guessing | None:
        """Return what guessing achieves on the records that a setting's models were trained on; None if that is not known."""
        return read_guessing(self.root / "pools" / setting.pool / "records.parquet") if setting.trained else None

    @cached_property
    def rocs(self) -> dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Cache of ROC curves by setting and attack: FPRs, mean TPRs and their standard deviation."""
        return {}

    def halves(self, setting: Setting) -> Halves | None:
        """Return how often the strongest attack calls every record a member in two halves of the models; None if not counted."""
        packed = self.facts(setting).get(HALVES)
        return Halves.unpacked(packed) if packed else None

    def fpr_of_halves(self, setting: Setting) -> float | None:
        """Return the smallest FPR at which calls were counted."""
        halves = self.halves(setting)
        return min(map(float, halves.hits), default=None) if halves else None

    def estimated(self, setting: Setting, fpr: float | None) -> Estimated | None:
        """Return what fresh models of a setting would reveal about every record; None if that is not known at this FPR."""
        key = setting, fpr
        if key not in self._estimated:
            halves = self.halves(setting)
            self._estimated[key] = estimated(halves, fpr, self.spec.confidence) if halves and fpr else None
        return self._estimated[key]

    @cached_property
    def _estimated(self) -> dict[Any, Estimated | None]:
        return {}

    @cached_property
    def datasets(self) -> list[str]:
        """The data sets of all settings and studies."""
        return list(dict.fromkeys([*(setting.dataset for setting in self.spec.settings), *self.spec.studies]))

    @cached_property
    def explanation_metrics(self) -> dict[tuple[str, str], pl.DataFrame]:
        """Measures of explanations by dataset × architecture, averaged over the records of every model."""
        return {
            group: per_model(
                read_frame(self.root.joinpath(*group, "explanation_metrics.parquet"), "explanation_metrics")
            )
            for group in self.spec.measured_groups
        }

    @cached_property
    def studied(self) -> list[Studied]:
        """Every black box of the audit's studies of private explanations."""
        from mia_audit.report.data.private import studied  # and the privacy accounting with it

        return list(studied(self.root, self.spec.studies, self.spec.confidence))

    def maps(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the attribution maps of the records shown, for every setting of a dataset × architecture."""
        return read_frame(self.root.joinpath(*group, "explanations.parquet"), "explanations")

    def explanation_curves(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the curves measured on explanations in every setting of a dataset × architecture, a row per model and step."""
        return read_frame(self.root.joinpath(*group, "curves.parquet"), "curves")

    def scored(self, setting: Setting, attack: str, signal: str, likelihood: str, aggregate: str = RECORDS) -> Scored:
        """Return the scores of one attack on the true membership, of records or of persons."""
        path = self._file(setting, "scores.parquet")
        scored = next(read_scores(path, attack, signal, likelihood, aggregate=aggregate), None)
        if scored is None:
            raise UserError(
                f"{path}: no scores of {attack} on {signal} ({likelihood}), although metrics.parquet has metrics for it"
            )
        return scored

    def mask_coverage(self, setting: Setting) -> float | None:
        """Return the share of the trained parameters whose noise a mask scales, from the first model's masks; None without masks."""
        from safetensors import SafetensorError, safe_open

        path = next(iter(sorted(self._file(setting, "models").glob("shadow-*/masks.safetensors"))), None)
        if path is None:
            return None
        try:
            with safe_open(path, "numpy") as file:
                stated = parse_object((file.metadata() or {})["masks"]).get("coverage")
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UserError(f"{path}: damaged ({type(error).__name__}); expected what a training wrote") from None
        return stated if isinstance(stated, float) else None

    def pool_metadata(self, dataset: str) -> dict[str, Any] | None:
        """Return the metadata of a pool and its membership design; None where the audit has no pool."""
        folder = self.root / "pools" / dataset
        if not (folder / "records.parquet").exists():
            return None
        metadata = table_metadata(folder / "records.parquet", "records")
        metadata["records"] = open_table(folder / "records.parquet", "records").metadata.num_rows
        if metadata.get("unit") == PERSON and (ids := read_persons(folder / "records.parquet")) is not None:
            metadata["persons"] = len(np.unique(ids))
        public = folder / "public.parquet"
        metadata["public"] = open_table(public, "records").metadata.num_rows if public.exists() else 0
        if (folder / "membership.parquet").exists():
            metadata["membership"] = table_metadata(folder / "membership.parquet", "membership")
        return metadata

    def origins(self, dataset: str) -> Callable[[int], str]:
        """Return a function that names a pool's record as its owner does: by its image file, or by its row and file.

        The text is empty if the pool states neither.
        """
        path = self.root / "pools" / dataset / "records.parquet"
        held = open_table(path, "records").schema_arrow.names if path.exists() else []
        if "file" in held:
            files = read_table(path, "records", ["file"])["file"].to_pylist()
            return lambda number: str(files[number])
        section = (self.spec.config.get("datasets") or {}).get(dataset) or {}
        file = PurePath(str(section.get("path") or "")).name
        if "source" not in held or section.get("source") != "table" or not file:
            return lambda number: ""
        rows = read_table(path, "records", ["source"])["source"].to_numpy()
        return lambda number: f"row {rows[number] + 1} of {file}"

    def records_of_persons(self, setting: Setting) -> np.ndarray | None:
        """Return the number of records of every audited person in a setting's pool; None if it names no persons."""
        path = self.root / "pools" / setting.pool / "records.parquet"
        ids = read_persons(path) if path.exists() else None
        return None if ids is None else np.unique(ids, return_counts=True)[1]

    def inputs(self) -> Iterator[Path]:
        """List the existing files that the report is made from, sorted."""
        paths = {
            self._file(setting, f"{name}.parquet")
            for setting in self.spec.settings
            for name in ("metrics", "scores", "training", *(["groups"] if setting.grouped else []))
        }
        paths |= set(self._shares())
        paths |= {
            self.root.joinpath(*group, f"{name}.parquet")
            for group in self.spec.measured_groups
            for name in ("explanation_metrics", "explanations", *(["curves"] if self.spec.curves else []))
        }
        paths |= {self.root.joinpath(*group, name) for group in self.spec.groups for name in (PUBLIC, *MODEL)}
        for dataset, study in self.spec.studies.items():
            boxes = (*study["black_boxes"], *(setting["name"] for setting in study["settings"]))
            paths |= {self.root / dataset / "private" / name / "answers.parquet" for name in boxes}
        for dataset in self.datasets:
            paths |= {
                self.root / "pools" / dataset / name
                for name in ("records.npy", "records.parquet", "public.parquet", "membership.parquet")
            }
        return iter(sorted(path for path in paths if path.exists()))

    def _file(self, setting: Setting, name: str) -> Path:
        return self.root / setting.path / name


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


def _others(metrics: pl.DataFrame, aggregate: str) -> list[tuple[str, pl.DataFrame]]:
    """Return the aggregates other than the headline's, each with its rows; that of records comes first."""
    aggregates = with_units(metrics)["aggregate"].unique(maintain_order=True).to_list()
    order = [RECORDS, *(name for name in aggregates if name != RECORDS)]
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
        aggregate, metrics = headline_unit(_informative(every, results.facts(setting)))
        leaking = by_channel(metrics, fpr, spec.likelihood, spec.confidence)
        if rows := results.facts(setting).get(FIRST_MODELS):
            leaking = _with_first(leaking, metrics_table(rows), fpr, spec.confidence)
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
                _learned(shadows, results.guessing(setting), spec.confidence),
            )
        )
    return Findings(fpr, findings, spec.confidence)


def _informative(metrics: pl.DataFrame, facts: Mapping[str, Any]) -> pl.DataFrame:
    """Leave out the attacks on signals that are the same everywhere, unless there are no others."""
    some = metrics.filter(~pl.col("signal").is_in(facts.get(CONSTANT, [])))
    return metrics if some.is_empty() else some


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


def _worth(setting: Setting, shadows: pl.DataFrame | None, counts: np.ndarray | None) -> Iterator[Worth]:
    """Yield what a guarantee per record means for persons with two, the median and the largest number of records."""
    if counts is None or shadows is None or not setting.private or not setting.delta:
        return
    from mia_audit.privacy.accounting import by_group_privacy, epsilon_of_person

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
