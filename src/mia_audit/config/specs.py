"""Specifications: for every stage of the workflow, everything that its output depends on, except its input files.

The workflow writes each specification to a JSON file whose name contains the digest of its content. The stage's command
reads this file. How a job runs (threads, device, checkpoints) is not part of a specification: changing it reruns
nothing.

Specifications of the last stages: tables, figures, report, and the figures of private explanations.
"""

import hashlib
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from mia_audit.attacks.catalogue import AUTHORS, Attacks, asked
from mia_audit.config import expand
from mia_audit.config.load import load_policy, parse
from mia_audit.config.schema import Audit
from mia_audit.config.sections import Architecture, Parameter, Target
from mia_audit.errors import UserError
from mia_audit.evaluation.section import Evaluation
from mia_audit.explain.catalogue import EXPLANATION_SETS
from mia_audit.explain.methods.llm import TopKeys
from mia_audit.explain.private_local.terms import PrivateExplanations
from mia_audit.explanation_metrics import measures
from mia_audit.foreign_json import parse_json
from mia_audit.pools.section import Dataset, Draw, Membership
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.registry import code_files, file_digest
from mia_audit.report.spec import AuditedSetting, Figures, ReportedAudit
from mia_audit.sections import Epsilon, Section, SettingEpsilon
from mia_audit.signals.families import options_of
from mia_audit.training.section import Training

DIGEST_LENGTH = 16
"""Number of hexadecimal digits of the SHA-256 in a file's name."""


CODE = "code"
"""The key for the SHA-256 of every file of the user that other keys name: files of code, and a pool's data."""


class Spec(Section):
    """Everything that a stage's output depends on, except input files."""

    @classmethod
    def stage(cls) -> str:
        """Return the stage's name in file names: `explanation-metrics` of ExplanationMetricsSpec."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__.removesuffix("Spec")).lower()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a specification from a JSON file.

        Raises UserError if the file is missing, not JSON, or lacks a key, or if a file of code has changed since it was
        written.
        """
        try:
            values = parse_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            reason = error.strerror.lower() if error.strerror else str(error)
            raise UserError(f"{path}: {reason}; expected the JSON file of a specification") from None
        except ValueError as error:
            raise UserError(f"{path}: not JSON: {' '.join(str(error).split())}") from None
        code = values.pop(CODE, {}) if isinstance(values, dict) else {}
        if not isinstance(code, dict):
            raise UserError(f"{path}: {CODE}: expected files of code and their digests")
        for file, digest in code.items():
            if digest != file_digest(file):
                raise UserError(f"{file}: changed since {path} was written; start the workflow again")
        return parse(cls, values, str(path))

    def contents(self) -> dict[str, Any]:
        """Return the keys that were set, as JSON values. Keys at their default are not part of the digest."""
        values = self.model_dump(mode="json", exclude_unset=True)
        files = {file: file_digest(file) for file in code_files(values)}
        return values | ({CODE: files} if files else {})

    def write(self, folder: Path) -> Path:
        """Write the specification to {stage}-{digest}.json in a folder, unless that file exists with this content."""
        text = self._text()
        path = folder / self._name(text)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            from mia_audit.storage.atomic import write_text  # planning imports no pyarrow

            write_text(path, text)
        return path

    def path(self, folder: Path) -> Path:
        """Return the specification's file in a folder, whether or not it exists."""
        return folder / self._name(self._text())

    def _text(self) -> str:
        return json.dumps(self.contents(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def _name(self, text: str) -> str:
        return f"{self.stage()}-{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]}.json"


class PoolSpec(Spec):
    """A pool of records."""

    seed: int
    name: str
    dataset: Dataset
    unread: ClassVar[set[str]] = {"groups", "architectures"}

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str) -> Self:
        """Specify a data set's pool, or its groups."""
        section = audit.datasets[dataset]
        values = section.model_dump(exclude_defaults=True, exclude=cls.unread) | {"source": section.source or dataset}
        return cls(seed=audit.seed, name=dataset, dataset=Dataset(**values))

    def contents(self) -> dict[str, Any]:
        """Return the keys that were set, with digests of the files that they name, so that files count by content and not by date."""
        values = super().contents()
        files = {file: file_digest(file) for file in self.dataset.files}
        return values | ({CODE: values.get(CODE, {}) | files} if files else {})


class GroupsSpec(PoolSpec):
    """The groups of a pool's audited records."""

    unread: ClassVar[set[str]] = {"architectures"}


class MembershipSpec(Spec):
    """The membership of a pool's records in training sets."""

    seed: int
    dataset: str
    membership: Membership
    unit: Literal["record", "person"] = "record"
    """The unit of the draw: records, or persons with all of their records."""

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str) -> Self:
        """Specify a data set's membership."""
        section = Membership(**audit.membership.model_dump(exclude_none=True))
        unit: Any = {"unit": "person"} if audit.datasets[dataset].by_person else {}
        return cls(seed=audit.seed, dataset=dataset, membership=section, **unit)


class ArchitectureSpec(Spec):
    """An architecture: model and parameters."""

    name: str
    architecture: Architecture

    @classmethod
    def from_audit(cls, audit: Audit, architecture: str) -> Self:
        """Specify an architecture without the keys of its training."""
        training = {"pretraining", "sweep", "training", "mechanisms"}
        section = expand.resolved_architecture(audit, architecture)
        values = section.model_dump(exclude=training, exclude_defaults=True)
        return cls(name=architecture, architecture=Architecture(**values))


class WeightsSpec(Spec):
    """The weights from which shadow models start: published ones, or the user's own."""

    name: str
    pretrained: str

    @classmethod
    def from_audit(cls, audit: Audit, architecture: str) -> Self:
        """Specify the origin of an architecture's weights."""
        return cls(name=architecture, pretrained=audit.architectures[architecture].pretrained)


class PretrainingSpec(Spec):
    """The training of a public model, from which shadow models start."""

    seed: int
    dataset: str
    architecture: str
    pretraining: Training

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str, architecture: str) -> Self:
        """Specify an architecture's training on a pool's public records."""
        section = audit.architectures[architecture].pretraining.model_dump(exclude_none=True)
        training = Training(**section)
        return cls(seed=audit.seed, dataset=dataset, architecture=architecture, pretraining=training)


class TrainingSpec(Spec):
    """The training of a setting's shadow models."""

    seed: int
    dataset: str
    architecture: str
    mechanism_name: str
    """The mechanism's name in the config."""
    mechanism: Mechanism
    epsilon: SettingEpsilon
    training: Training
    draw: Draw | None = None
    """How a model's training set is drawn, independent of the number of models. If unset, it is read from the pool's membership.parquet."""

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str, architecture: str, mechanism: str, epsilon: str) -> Self:
        """Specify the training of a setting's shadow models; estimators do not use `training`."""
        reads = audit.architectures[architecture].learner != "estimator"
        section = audit.training_of(architecture, mechanism) if reads else Training(epochs=1)
        return cls(
            seed=audit.seed,
            dataset=dataset,
            architecture=architecture,
            mechanism_name=mechanism,
            mechanism=expand.resolved_mechanism(audit, mechanism, dataset),
            epsilon=epsilon,
            training=Training(**section.model_dump(exclude_none=True, exclude_unset=not reads, exclude={"floor"})),
            draw=expand.draw_of(audit, dataset),
        )


class CanariesSpec(Spec):
    """The canaries of a data set."""

    count: int
    kinds: tuple[str, ...]

    @classmethod
    def from_audit(cls, audit: Audit) -> Self:
        """Specify the number and the kinds of canaries."""
        return cls(count=audit.canaries.count, kinds=audit.canaries.kinds)


class SignalsSpec(Spec):
    """The signals of shadow models."""

    seed: int
    dataset: str
    families: dict[str, dict[str, Any]]
    """By family: its explainers, and the options that they read."""
    draw: Draw | None = None
    """How training sets are drawn, if an explainer reads them."""

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str, architecture: str) -> Self:
        """Specify an architecture's signals."""
        families = expand.families_of(audit)[architecture]
        reads = any(expand.needs_training_records(known["explainers"]) for known in families.values())
        draw = {"draw": expand.draw_of(audit, dataset)} if reads else {}
        return cls(seed=audit.seed, dataset=dataset, families=families, **draw)

    @classmethod
    def of_target(cls, audit: Audit, target: str) -> Self:
        """Specify the signals of a finished model, with the same options as for its references."""
        reference = expand.references(audit, target)
        families = expand.families_of(audit)[reference.architecture]
        return cls(seed=audit.seed, dataset=reference.dataset, families=families)

    def of_family(self, family: str) -> dict[str, Any]:
        """Return what one family's signals depend on, so that a change of another family leaves them as they are."""
        options = self.contents()["families"][family]
        files = {file: file_digest(file) for file in code_files(options)}
        reads = expand.needs_training_records(options["explainers"])
        draw = {"draw": self.draw.model_dump(mode="json")} if self.draw and reads else {}
        return {"seed": self.seed, "dataset": self.dataset, "family": family, "options": options, CODE: files, **draw}


class TargetSpec(Spec):
    """A finished model, and the records on which it was trained."""

    name: str
    target: Target
    number: int
    """The model's number, which follows those of the shadow models."""
    data: Dataset
    """The data set, whose table may name the members."""

    @classmethod
    def from_audit(cls, audit: Audit, target: str) -> Self:
        """Specify a finished model of an audit."""
        dataset = expand.references(audit, target).dataset
        section = audit.datasets[dataset]
        data = section.model_dump(include={"path", "label"}, exclude_defaults=True)
        return cls(
            name=target,
            target=Target(**audit.targets[target].model_dump(exclude_defaults=True)),
            number=audit.membership.models,
            data=Dataset(**data, source=section.source or dataset),
        )


class MergeSpec(Spec):
    """The tables of a setting's models that are joined into one."""

    families: tuple[str, ...]
    """Families of signals, in the order of their columns."""
    first: int = 0
    """The first model's number."""
    models: int

    @property
    def shadows(self) -> range:
        """The numbers of the models."""
        return range(self.first, self.first + self.models)

    @classmethod
    def from_audit(cls, audit: Audit, architecture: str, mechanism: str) -> Self:
        """Specify the joined tables of a mechanism's models."""
        return cls(families=tuple(expand.families_of(audit)[architecture]), models=audit.number_of_models(mechanism))

    @classmethod
    def of_target(cls, audit: Audit, target: str) -> Self:
        """Specify the joined table of a finished model's signals, which follow those of its references."""
        families = expand.families_of(audit)[expand.references(audit, target).architecture]
        return cls(families=tuple(families), first=audit.membership.models, models=1)


class ExplanationMetricsSpec(Spec):
    """Measures of an architecture's explanations, compared between its settings."""

    seed: int
    dataset: str
    settings: tuple[tuple[str, SettingEpsilon], ...]
    """Mechanism and ε of every setting."""
    reference: tuple[str, SettingEpsilon] | None
    """The setting without privacy with which the others are compared."""
    models: int
    """Number of first models of every setting that are compared."""
    records: int
    shown: int
    """Number of records whose maps are stored."""
    explainers: tuple[str, ...]
    explaining: dict[str, Any]
    """Options that the explainers read."""
    measures: tuple[str, ...]
    measuring: dict[str, Any]
    """Options that the measures read."""

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str, architecture: str) -> Self:
        """Specify the measures of an architecture on a data set."""
        section, compared = audit.explanation_metrics, expand.group_of(audit, dataset, architecture)
        names = expand.compared_explainers(audit, architecture)
        options = {option for name in section.measures for option in measures[name].options()}
        bare = (one for one in compared if not audit.mechanisms[one.mechanism].kind.private)
        return cls(
            seed=audit.seed,
            dataset=dataset,
            settings=tuple((one.mechanism, one.epsilon) for one in compared),
            reference=next(((one.mechanism, one.epsilon) for one in bare), None),
            models=expand.compared_models(audit),
            records=section.records,
            shown=section.shown,
            explainers=tuple(names),
            explaining=options_of(audit.explainers, names),
            measures=section.measures,
            measuring=section.model_dump(include=options),
        )


class FiltersSpec(Spec):
    """Figures of the filters of locally linear maps."""

    seed: int
    dataset: str
    top: int
    """Number of maps drawn for every record and class."""
    shown: int
    """Number of records that are drawn."""
    architectures: dict[str, tuple[tuple[str, str], ...]]
    """Heading and folder of every setting, by architecture."""
    figures: Figures = Figures()

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str) -> Self:
        """Specify a data set's figures."""
        groups = expand.filter_settings(audit, dataset).items()
        return cls(
            seed=audit.seed,
            dataset=dataset,
            top=audit.explainers.read(TopKeys).llm_top,
            shown=audit.explanation_metrics.shown,
            architectures={name: tuple((one.label, one.path) for one in group) for name, group in groups},
            figures=audit.report.figures,
        )


class BlackBoxSpec(Spec):
    """The outputs of a black box on a pool's records."""

    seed: int
    dataset: str
    black_box: str
    """A registered black box, or a trained model's name in file names."""

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str, name: str) -> Self:
        """Specify a black box of a study."""
        return cls(seed=audit.seed, dataset=dataset, black_box=name)


class PrivateExplanationsSpec(Spec):
    """A study of private explanations of one black box."""

    seed: int
    dataset: str
    study: PrivateExplanations

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str) -> Self:
        """Specify a data set's study."""
        stated = audit.private_explanations[dataset]
        unread = {"black_boxes", "architectures", "pictures", "attacked"}
        # at their defaults they are left out, so that older studies keep their digests
        optional = {"repetitions", "parts", "traced", "nearest"}
        unread |= optional - stated.model_dump(include=optional, exclude_defaults=True).keys()
        return cls(seed=audit.seed, dataset=dataset, study=PrivateExplanations(**stated.model_dump(exclude=unread)))


class ExplanationSignalsSpec(Spec):
    """Signals of membership in the explanation sets of a fixed black box."""

    seed: int
    dataset: str
    black_box: str
    epsilon: Epsilon
    """ε of one explanation; inf without noise."""
    study: PrivateExplanations

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str, black_box: str, epsilon: str) -> Self:
        """Specify the signals of a black box's explanations at one ε."""
        terms = {"c", "delta", "kernel", "adjacency", "scale", "steps"}
        study = PrivateExplanations(**audit.private_explanations[dataset].model_dump(include=terms))
        return cls(seed=audit.seed, dataset=dataset, black_box=black_box, epsilon=epsilon, study=study)


class AttackSpec(Spec):
    """Membership scores of a setting."""

    seed: int
    dataset: str
    attacks: Attacks
    stated: bool = False
    """Whether the config names attacks other than the defaults; attacks without a signal to read are then reported."""

    @classmethod
    def from_audit(cls, audit: Audit, dataset: str) -> Self:
        """Specify the attacks on a data set's settings."""
        named: Any = {"stated": True} if audit.attacks.methods != Attacks().methods else {}
        return cls(seed=audit.seed, dataset=dataset, attacks=Attacks(**audit.attacks.model_dump()), **named)


class EvaluationSpec(Spec):
    """Metrics of a setting."""

    evaluation: Evaluation
    models: int | None = None
    """The fewest models of the audit's settings, if this one has more: comparisons take its first ones alone."""

    @classmethod
    def from_audit(cls, audit: Audit, mechanism: str = "") -> Self:
        """Specify the metrics of a mechanism's settings."""
        fewest = expand.fewest_models(audit)
        more: Any = (
            {"models": fewest} if mechanism in audit.mechanisms and audit.number_of_models(mechanism) > fewest else {}
        )
        return cls(evaluation=Evaluation(**audit.evaluation.model_dump()), **more)


class StudiedSetting(Section):
    """A setting whose first model is explained privately."""

    name: str
    """The setting's name in file names."""
    dataset: str
    architecture: str
    mechanism: str
    epsilon: SettingEpsilon
    trained: bool = True
    label: str = ""
    architecture_label: str = ""
    mechanism_label: str = ""


class StudySpec(PrivateExplanations):
    """A study of private explanations, and the settings among its black boxes."""

    settings: tuple[StudiedSetting, ...]
    dataset_label: str = ""


def studies(audit: Audit) -> dict[str, StudySpec]:
    """Return the studies of private explanations by data set, in the form that their tables and figures read."""
    return {dataset: _study(audit, dataset) for dataset in audit.private_explanations}


def _study(audit: Audit, dataset: str) -> StudySpec:
    section = audit.private_explanations[dataset].model_dump(exclude={"architectures"})
    explained = expand.explained_settings(audit, dataset).items()
    settings = tuple(StudiedSetting(name=name, **asdict(one), **_setting_labels(audit, one)) for name, one in explained)
    return StudySpec(**section, settings=settings, dataset_label=audit.report.labels.datasets.get(dataset, ""))


def reported_settings(audit: Audit) -> list[AuditedSetting]:
    """Return every setting's description for tables, figures and report."""
    described = []
    for setting in expand.settings(audit):
        pool = audit.datasets.get(setting.dataset)
        facts = {"by_person": pool.by_person, "grouped": bool(pool.groups)} if pool else {}
        one = _reported(audit, setting)
        changes: dict[str, Any] = {**facts, **_labels(audit, one)}
        described.append(replace(one, **changes))
    return described


def _labels(audit: Audit, setting: AuditedSetting) -> dict[str, str]:
    """Return a setting's label; that of a finished model says so, and not how the model was trained."""
    labels = audit.report.labels
    pool = setting.dataset.removesuffix(EXPLANATION_SETS)
    dataset = labels.datasets.get(pool, "")
    shown = f"{dataset}, explained" if dataset and pool != setting.dataset else dataset
    named = {"dataset_label": shown, **_setting_labels(audit, setting)}
    return named | {"label": ""} if setting.finished else named


def _setting_labels(audit: Audit, setting: AuditedSetting | expand.Setting) -> dict[str, str]:
    """Return a setting's labels; a script that gets no ε is named, because it may protect what it trains."""
    labels = audit.report.labels
    mechanism = labels.settings.get(setting.mechanism, "")
    alone = setting.epsilon == "inf"
    own = labels.settings.get(f"{setting.mechanism}-eps{setting.epsilon}", mechanism if alone else "")
    architecture = labels.architectures.get(setting.architecture, "")
    section = audit.architectures.get(setting.architecture)
    if not own and setting.trained and setting.mechanism == "none" and section and section.learner == "script":
        own = expand.resolved_architecture(audit, setting.architecture).model
    return {"label": own, "architecture_label": architecture, "mechanism_label": mechanism}


def _reported(audit: Audit, setting: expand.Setting) -> AuditedSetting:
    named, design = asdict(setting), audit.membership.design
    if not setting.trained and setting.architecture in audit.targets:
        mechanism = expand.resolved_mechanism(audit, setting.mechanism)
        private = mechanism.kind.private and not mechanism.kind.no_guarantee
        return AuditedSetting(
            **named,
            private=private,
            no_guarantee=mechanism.kind.no_guarantee,
            delta=mechanism.delta if private else None,
            accountant="claimed" if private else None,  # the guarantee is a claim of whoever trained the models
            finished=audit.targets[setting.architecture].model,
        )
    if not setting.trained and setting.dataset in audit.imported:
        delta = audit.imported[setting.dataset].delta
        claimed = None if delta is None else "claimed"
        return AuditedSetting(**named, private=delta is not None, delta=delta, accountant=claimed)
    if not setting.trained:
        study = audit.private_explanations[setting.dataset.removesuffix(EXPLANATION_SETS)]
        private = setting.epsilon != "inf"
        explained = {"black_box": setting.architecture, "steps": study.steps, "adjacency": study.adjacency}
        delta = study.delta if private else None
        return AuditedSetting(**named, design=design, private=private, delta=delta, explained=explained)
    mechanism = expand.resolved_mechanism(audit, setting.mechanism)
    architecture = expand.resolved_architecture(audit, setting.architecture)
    no_guarantee = mechanism.kind.no_guarantee
    noise = mechanism.model_extra or {}
    private = mechanism.kind.private and not no_guarantee
    return AuditedSetting(
        **named,
        floor=expand.floor_of(audit, setting.dataset, setting.architecture, setting.mechanism),
        design=design,
        private=private,
        no_guarantee=no_guarantee,
        delta=mechanism.delta if private else None,
        accountant=("claimed" if mechanism.kind.claimed else noise.get("accountant")) if private else None,
        clipping=noise.get("clipping") if private else None,
        model=architecture.model,
        measured=bool(expand.compared_explainers(audit, setting.architecture)),
        parameters=architecture.parameters | _swept_of_training(audit, setting),
        swept=dict(architecture.swept.values) if architecture.swept else {},
    )


def _swept_of_training(audit: Audit, setting: expand.Setting) -> dict[str, Parameter]:
    """Return a setting's values of the training keys that any sweep of the audit varies."""
    training = audit.training_of(setting.architecture, setting.mechanism)
    keys = sorted({key for one in audit.architectures.values() if one.swept for key in one.swept.training})
    return {key: value for key in keys if (value := getattr(training, key)) is not None}


class ReportSpec(Spec, ReportedAudit):
    """Tables, figures and page of an audit."""

    @classmethod
    def from_audit(cls, audit: Audit) -> Self:
        """Specify an audit's tables, figures and page."""
        found = {dataset: study.model_dump(mode="json") for dataset, study in studies(audit).items()}
        return cls(
            audit=audit.audit,
            title=audit.report.title or audit.audit,
            exposed=audit.report.exposed if audit.report.show_records else 0,
            figures=audit.report.figures,
            **({"margins": audit.report.margins} if audit.report.margins else {}),
            **({"compare": audit.report.compare} if audit.report.compare else {}),
            settings=tuple(reported_settings(audit)),
            likelihood=audit.attacks.likelihoods[0],
            as_published=asked(audit.attacks.methods, AUTHORS),
            explanation_metrics=bool(expand.compared_settings(audit)),
            explanation_maps=audit.explanation_metrics.shown > 0 and audit.report.show_records,
            curves=expand.measures_curves(audit),
            intrinsic=tuple(expand.intrinsic_datasets(audit)),
            confidence=audit.evaluation.confidence,
            explainers=audit.explainers.model_dump(mode="json"),
            config=resolved(audit),
            config_hash=config_hash(audit),
            **({"studies": found} if found else {}),
            **({"policy": load_policy(Path(audit.report.policy))} if audit.report.policy else {}),
            **({"canaries": audit.canaries.settings} if audit.canaries.settings else {}),
        )


class SeedsSpec(ReportSpec):
    """The results of an audit over its seeds."""

    seeds: tuple[int, ...]

    @classmethod
    def from_audit(cls, audit: Audit) -> Self:
        """Specify the means over an audit's seeds."""
        return cls(**dict(ReportSpec.from_audit(audit)), seeds=audit.seeds)


class PaperSpec(Spec):
    """A paper's tables and figures, with its printed numbers beside an audit's."""

    paper: str

    @classmethod
    def from_audit(cls, audit: Audit) -> Self:
        """Specify the paper that an audit names."""
        return cls(paper=audit.report.paper)


def resolved(audit: Audit) -> dict[str, Any]:
    """Return the resolved config without `compute`, on which no result depends."""
    return audit.model_dump(mode="json", exclude={"compute", "seed" if audit.seeds else "seeds"})


def config_hash(audit: Audit) -> str:
    """Return the SHA-256 of the resolved config without `compute`, on which no result depends."""
    return hashlib.sha256(json.dumps(resolved(audit), sort_keys=True, ensure_ascii=False).encode()).hexdigest()
