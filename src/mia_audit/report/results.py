"""The files of an audit, each read once, for its tables, figures and page, with the answers of studies of private explanations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from mia_audit.attacks.design import PERSON, RECORDS
from mia_audit.attacks.io.parquet import GIVEN
from mia_audit.errors import UserError
from mia_audit.evaluation.exposure import HALVES, Estimated, Halves, estimated
from mia_audit.evaluation.files import Scored, read_scores, summarise
from mia_audit.evaluation.run import MODEL_COUNTS
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.explanation_metrics.catalogue import per_model
from mia_audit.foreign_json import parse_object, read_object
from mia_audit.pools.store import read_persons
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.report.findings import Estimate, estimate, mean_over_seeds
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.storage import given_digest, open_table, read_frame, read_table, table_metadata

PUBLIC = "public.json"
"""The file of a public model's accuracies, in the folder of its data set and architecture."""
MODEL = ("architecture.json", "public.safetensors", "start.safetensors")
"""The files from which all models of that folder start."""
CANARIES = "canaries.csv"
"""The bounds on ε of a setting that was trained on canaries."""

SHARES = "figures/filters/*/shares.csv"
"""How unevenly locally linear maps are mixed, by data set."""


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
    values = read_object(path, "what public pre-training wrote") if path.exists() else {}
    return Start(values["test_accuracy"], values["test_loss"], values["records"]) if "test_accuracy" in values else None


@dataclass(frozen=True)
class Results:
    """The files of an audit below the folder `root`, each read when it is first needed."""

    root: Path
    spec: ReportedAudit
    rocs: dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict, init=False, repr=False)
    """ROC curves by setting and attack: FPRs, mean TPRs and their standard deviation."""
    estimates: dict[Any, Estimated | None] = field(default_factory=dict, init=False, repr=False)
    """What fresh models would reveal about every record, by setting and FPR."""

    @cached_property
    def metrics(self) -> list[pl.DataFrame]:
        """metrics.parquet of every setting, in the order of the spec."""
        return [read_frame(self._file(setting, "metrics.parquet"), "metrics") for setting in self.spec.settings]

    @cached_property
    def summaries(self) -> list[pl.DataFrame]:
        """The metrics of every setting summarised over targets, in the order of the spec."""
        return [summarise(metrics, self.spec.confidence) for metrics in self.metrics]

    @cached_property
    def model_counts(self) -> list[list[dict[str, Any]]]:
        """Metrics with fewer other models, by setting (`evaluation.model_counts`)."""
        return [self.facts(setting).get(MODEL_COUNTS, []) for setting in self.spec.settings]

    @cached_property
    def evenly_mixed(self) -> list[tuple[str, dict[str, Any]]]:
        """The data set, and the row of shares.csv, of every setting whose locally linear maps are mixed evenly."""
        tables = ((path.parent.name, pl.read_csv(path)) for path in sorted(self.root.glob(SHARES)))
        return [(dataset, row) for dataset, table in tables for row in table.filter("mixed_evenly").to_dicts()]

    def facts(self, setting: AuditedSetting) -> dict[str, Any]:
        """Return the metadata of a setting's metrics.parquet."""
        return table_metadata(self._file(setting, "metrics.parquet"), "metrics")

    def groups(self, setting: AuditedSetting) -> tuple[pl.DataFrame, dict[str, dict[str, int]]]:
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

    def guessing(self, setting: AuditedSetting) -> Guessing | None:
        """Return what guessing achieves on the records that a setting's models were trained on; None if that is not known."""
        return read_guessing(self.root / "pools" / setting.pool / "records.parquet") if setting.trained else None

    def halves(self, setting: AuditedSetting) -> Halves | None:
        """Return how often the strongest attack calls every record a member in two halves of the models; None if not counted."""
        packed = self.facts(setting).get(HALVES)
        return Halves.unpacked(packed) if packed else None

    def estimated(self, setting: AuditedSetting, fpr: float | None) -> Estimated | None:
        """Return what fresh models of a setting would reveal about every record; None if that is not known at this FPR."""
        key = setting, fpr
        if key not in self.estimates:
            halves = self.halves(setting)
            self.estimates[key] = estimated(halves, fpr, self.spec.confidence) if halves and fpr else None
        return self.estimates[key]

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

    @property
    def every(self) -> list[Results]:
        """The results of every seed: these alone."""
        return [self]

    @cached_property
    def studied(self) -> list[Studied]:
        """Every black box of the studies of private explanations: first those fitted to the pool, then models by decreasing ε."""
        found = []
        for dataset, study in self.spec.studies.items():
            ordered = sorted(study["settings"], key=lambda setting: -float(setting["epsilon"]))
            settings = {setting["name"]: setting for setting in ordered}
            for name in (*study["black_boxes"], *settings):
                answers = read_frame(self.root / dataset / "private" / name / "answers.parquet", "private-answers")
                found.append(
                    Studied(
                        dataset=dataset,
                        name=name,
                        study=study,
                        answers=answers,
                        setting=settings.get(name),
                        confidence=self.spec.confidence,
                    )
                )
        return found

    def maps(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the attribution maps of the records shown, for every setting of a dataset × architecture."""
        return read_frame(self.root.joinpath(*group, "explanations.parquet"), "explanations")

    def explanation_curves(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the curves measured on explanations in every setting of a dataset × architecture, a row per model and step."""
        return read_frame(self.root.joinpath(*group, "curves.parquet"), "curves")

    def scored(
        self, setting: AuditedSetting, attack: str, signal: str, likelihood: str, aggregate: str = RECORDS
    ) -> Scored:
        """Return the scores of one attack on the true membership, of records or of persons."""
        path = self._file(setting, "scores.parquet")
        scored = next(read_scores(path, attack, signal, likelihood, aggregate=aggregate), None)
        if scored is None:
            raise UserError(
                f"{path}: no scores of {attack} on {signal} ({likelihood}), although metrics.parquet has metrics for it"
            )
        return scored

    def mask_coverage(self, setting: AuditedSetting) -> float | None:
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

    def records_of_persons(self, setting: AuditedSetting) -> np.ndarray | None:
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
        paths |= {self.root / setting / CANARIES for setting in self.spec.canaries}
        paths |= set(self.root.glob(SHARES))
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
            pool = self.root / "pools" / dataset
            paths |= {pool / f"{part}.{kind}" for part in ("records", "public") for kind in ("npy", "parquet")}
            paths |= {pool / "groups.parquet", pool / "membership.parquet"}
        return iter(sorted(path for path in paths if path.exists()))

    def _file(self, setting: AuditedSetting, name: str) -> Path:
        return self.root / setting.path / name


ROUNDING = 1e-12
"""Losses below this are rounding errors."""
Rows = Callable[["Studied"], pl.DataFrame]
"""A function that selects some of the answers of one repetition."""


@dataclass(frozen=True)
class Studied:
    """One black box of a study: its name, its answers, and its setting if it is a model of this audit.

    If experiments were repeated, `experiment` and `protocol` are for a single item of `repetitions`; `estimates`,
    `estimated`, `over`, `mean`, `spent`, `instead`, `saved` and `losses` are over all repetitions.
    """

    dataset: str
    name: str
    study: Mapping[str, Any]
    answers: pl.DataFrame
    setting: Mapping[str, Any] | None
    confidence: float = 0.95

    @cached_property
    def repetitions(self) -> list[Studied]:
        """One study per repetition; only the study itself if nothing was repeated."""
        if "repetition" not in self.answers.columns:
            return [self]
        return [replace(self, answers=own) for own in self.answers.partition_by("repetition", maintain_order=True)]

    def estimates(self, values: Callable[[Studied], Iterable[float]]) -> list[Estimate]:
        """Return the means of numbers over repetitions, with Student's t intervals; as many as every repetition has."""
        each = zip(*(values(one) for one in self.repetitions), strict=False)
        return [estimate(column, self.confidence) for column in each]

    def estimated(self, value: Callable[[Studied], float]) -> Estimate:
        """Return the estimate of a single number."""
        return self.estimates(lambda one: (value(one),))[0]

    def over(self, value: Callable[[Studied], float | None]) -> Estimate | None:
        """Return the estimate of a number that a repetition may lack; None if some repetition has no such number."""

        def known(one: Studied) -> float:
            number = value(one)
            return math.nan if number is None else number

        found = self.estimated(known)
        return None if math.isnan(found.mean) else found

    def mean(self, rows: Rows, column: str) -> Estimate:
        """Return the mean of a column of some of the answers."""
        return self.estimated(lambda one: mean_of(rows(one), column))

    def spent(self, rows: Rows) -> Estimate:
        """Return the total ε of some of the answers."""
        return self.estimated(lambda one: one.epsilon_of(rows(one)))

    def instead(self, rows: Rows) -> Estimate | None:
        """Return the ε that as many queries from scratch would spend to reach the mean loss of some of the answers."""
        return self.over(lambda one: one.scratch_at_equal_loss(rows(one)))

    def saved(self, rows: Rows) -> Estimate | None:
        """Return the share of the ε of `instead` that some of the answers save; below 0 if they spend more."""

        def share(one: Studied) -> float | None:
            instead = one.scratch_at_equal_loss(rows(one))
            return None if instead is None else 1 - one.epsilon_of(rows(one)) / instead

        return self.over(share)

    def losses(self) -> dict[tuple[str, float], Estimate]:
        """Return mean losses of explanations from scratch, by published choice and ε of one explanation."""

        def loss(key: tuple[str, float]) -> Estimate:
            return self.estimated(lambda one: one.over_epsilon[key])

        return {key: loss(key) for key in self.repetitions[0].over_epsilon}

    @property
    def dataset_name(self) -> str:
        """What readers call the data set."""
        return str(self.study.get("dataset_label") or self.dataset)

    @property
    def architecture_name(self) -> str:
        """What readers call the model's architecture; empty for a black box that is not a model."""
        setting = self.setting or {}
        return str(setting.get("architecture_label") or setting.get("architecture", ""))

    @property
    def training(self) -> str:
        """How the model was trained, in prose; empty for a black box that is not a model."""
        if self.setting is None:
            return ""
        mechanism = self.setting.get("mechanism_label") or self.setting["mechanism"]
        plain = "no DP" if self.setting["epsilon"] == "inf" else f"{mechanism} ε = {self.setting['epsilon']}"
        return str(self.setting.get("label") or plain)

    @property
    def label(self) -> str:
        """The black box's name in prose."""
        return f"{self.architecture_name}, {self.training}" if self.setting else self.name

    def experiment(self, name: str) -> pl.DataFrame:
        """Return the answers of one experiment, in their order."""
        return self.answers.filter(experiment=name).sort("number")

    def protocol(self, name: str) -> pl.DataFrame:
        """Return the answers of one protocol where protocols are compared, in their order."""
        return self.experiment("protocols").filter(protocol=name)

    @property
    def from_scratch(self) -> pl.DataFrame:
        """The answers from scratch where protocols are compared, those of all repetitions."""
        return self.answers.filter(experiment="protocols", protocol="non-adaptive")

    @cached_property
    def over_epsilon(self) -> dict[tuple[str, float], float]:
        """Mean losses of explanations from scratch, by published choice and ε of one explanation."""
        means = self.experiment("epsilon").group_by("as_published", "epsilon").agg(pl.col("excess_loss").mean())
        return {(published, epsilon): loss for published, epsilon, loss in means.iter_rows()}

    def epsilon_of(self, rows: pl.DataFrame) -> float:
        """Return the total ε of these answers."""
        return epsilon_of_gdp(math.sqrt(rows["mu_squared_spent"].to_numpy().max()), self.study["delta"])

    def scratch_at_equal_loss(self, rows: pl.DataFrame) -> float | None:
        """Return the ε that as many queries from scratch would spend to reach these answers' mean loss; None outside the measured range.

        The ε of one query with that loss is interpolated linearly in log ε over log loss.
        """
        losses = {epsilon: loss for (published, epsilon), loss in self.over_epsilon.items() if not published}
        losses[self.study["epsilon"]] = mean_of(self.protocol("non-adaptive"), "excess_loss")
        known = sorted((math.log(max(loss, ROUNDING)), math.log(epsilon)) for epsilon, loss in losses.items())
        wanted = math.log(max(mean_of(rows, "excess_loss"), ROUNDING))
        if not known[0][0] <= wanted <= known[-1][0]:
            return None
        epsilon = math.exp(float(np.interp(wanted, [loss for loss, _ in known], [at for _, at in known])))
        terms = terms_at(self.study, epsilon)
        return epsilon_of_gdp(math.sqrt(len(rows) * terms.steps * terms.step_cost), terms.delta)


@dataclass(frozen=True)
class StudiedOverSeeds(Studied):
    """A black box of an audit with several seeds: the answers of all of them, and estimates over seeds."""

    every: tuple[Studied, ...] = ()

    @cached_property
    def repetitions(self) -> list[Studied]:
        """One study per seed and repetition."""
        return [again for one in self.every for again in one.repetitions]

    def estimates(self, values: Callable[[Studied], Iterable[float]]) -> list[Estimate]:
        """Return the means over seeds of the means over repetitions; as many as every repetition has."""
        each = zip(*(one.estimates(values) for one in self.every), strict=False)
        return [mean_over_seeds(column, self.confidence) for column in each]


@dataclass(frozen=True)
class ResultsOverSeeds(Results):
    """The results of an audit with several seeds: those in which private explanations are studied."""

    folders: tuple[Path, ...] = ()

    @cached_property
    def every(self) -> list[Results]:
        """The results of every seed."""
        return [Results(folder, self.spec) for folder in self.folders]

    @cached_property
    def studied(self) -> list[Studied]:
        """Every black box, over seeds."""
        return [
            StudiedOverSeeds(
                **{part.name: getattr(boxes[0], part.name) for part in fields(Studied) if part.name != "answers"},
                answers=pl.concat(one.answers for one in boxes),
                every=boxes,
            )
            for boxes in zip(*(one.studied for one in self.every), strict=True)
        ]


def mean_of(rows: pl.DataFrame, column: str) -> float:
    """Return the mean of a column that has no nulls."""
    return float(rows[column].to_numpy().mean())


def terms_at(study: Mapping[str, Any], epsilon: float) -> ExplanationTerms:
    """Return the terms of a single explanation whose budget is this ε."""
    return ExplanationTerms(
        epsilon=epsilon,
        delta=study["delta"],
        budget=epsilon,
        steps=study["steps"],
        c=study["c"],
        kernel=study["kernel"],
        adjacency=study["adjacency"],
    )
