"""Specifications of the last stages: tables, figures, report, and the figures of private explanations."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from mia_audit.attacks.catalogue import AUTHORS, asked
from mia_audit.config import expand
from mia_audit.config.policy import load_policy
from mia_audit.config.schema import Audit
from mia_audit.config.specs import Spec
from mia_audit.config.sweep import Parameter
from mia_audit.evaluation.section import Evaluation
from mia_audit.explain.catalogue import EXPLANATION_SETS
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.explain.section import Explainers
from mia_audit.report.gate.policy import Policy
from mia_audit.report.section import Figures
from mia_audit.sections import Section, SettingEpsilon


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


class Study(PrivateExplanations):
    """A study of private explanations, and the settings among its black boxes."""

    settings: tuple[StudiedSetting, ...]
    dataset_label: str = ""


def studies(audit: Audit) -> dict[str, Study]:
    """Return the studies of private explanations by data set, in the form that their tables and figures read."""
    return {dataset: _study(audit, dataset) for dataset in audit.private_explanations}


def _study(audit: Audit, dataset: str) -> Study:
    section = audit.private_explanations[dataset].model_dump(exclude={"architectures"})
    explained = expand.explained_settings(audit, dataset).items()
    settings = tuple(StudiedSetting(name=name, **asdict(one), **_setting_labels(audit, one)) for name, one in explained)
    return Study(**section, settings=settings, dataset_label=audit.report.labels.datasets.get(dataset, ""))


class ExplanationSets(Section):
    """The fixed black box of a setting that is attacked through explanation sets."""

    black_box: str
    steps: int
    adjacency: str


class ReportedSetting(Section):
    """A setting, the guarantee of its mechanism, and the parameters of its model."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: SettingEpsilon
    trained: bool = True
    private: bool = False
    delta: float | None = None
    design: str = ""
    """The membership design; empty if unknown."""
    no_guarantee: str = ""
    """The reason why the mechanism guarantees no privacy for any ε."""
    accountant: str | None = None
    clipping: str | None = None
    model: str = ""
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    swept: dict[str, Parameter] = Field(default_factory=dict)
    swept_mechanism: str = ""
    """The section of the mechanism whose sweep gave this setting; empty without a sweep."""
    explained: ExplanationSets | None = None
    finished: str = ""
    """The file or folder of the finished model that is the only target; empty if there is none."""
    measured: bool = True
    """Whether the audit measures explanations of the setting's models."""
    by_person: bool = False
    """Whether membership was drawn by person."""
    grouped: bool = False
    """Whether results are sliced by groups of records."""
    floor: float = 0.0
    """Test accuracy that the first model of every training job had to reach."""
    folder: str = ""
    """The setting's folder below the results; {dataset}/{architecture}/{mechanism}-eps{epsilon} when left out."""
    label: str = ""
    """The label that replaces mechanism and ε in the report; if left out, the report shows these."""
    dataset_label: str = ""
    architecture_label: str = ""
    mechanism_label: str = ""


def reported_settings(audit: Audit) -> list[ReportedSetting]:
    """Return every setting's description for tables, figures and report."""
    described = [_reported(audit, setting) for setting in expand.settings(audit)]
    pools = [audit.datasets.get(setting.dataset) for setting in described]
    traits = [{"by_person": pool.by_person, "grouped": bool(pool.groups)} if pool else {} for pool in pools]
    return [
        setting.model_copy(update={key: True for key, value in facts.items() if value} | _labels(audit, setting))
        for setting, facts in zip(described, traits, strict=True)
    ]


def _labels(audit: Audit, setting: ReportedSetting) -> dict[str, str]:
    """Return a setting's label; that of a finished model says so, and not how the model was trained."""
    labels = audit.report.labels
    pool = setting.dataset.removesuffix(EXPLANATION_SETS)
    dataset = labels.datasets.get(pool, "")
    shown = f"{dataset}, explained" if dataset and pool != setting.dataset else dataset
    named = {"dataset_label": shown, **_setting_labels(audit, setting)}
    return named | {"label": ""} if setting.finished else named


def _setting_labels(audit: Audit, setting: ReportedSetting | expand.Setting) -> dict[str, str]:
    labels = audit.report.labels
    mechanism = labels.settings.get(setting.mechanism, "")
    alone = setting.epsilon == "inf"
    own = labels.settings.get(f"{setting.mechanism}-eps{setting.epsilon}", mechanism if alone else "")
    architecture = labels.architectures.get(setting.architecture, "")
    return {"label": own, "architecture_label": architecture, "mechanism_label": mechanism}


def _reported(audit: Audit, setting: expand.Setting) -> ReportedSetting:
    named, design = asdict(setting), audit.membership.design
    if not setting.trained and setting.architecture in audit.targets:
        mechanism = expand.resolved_mechanism(audit, setting.mechanism)
        private = mechanism.kind.private and not mechanism.kind.no_guarantee
        return ReportedSetting(
            **named,
            private=private,
            no_guarantee=mechanism.kind.no_guarantee,
            delta=mechanism.delta if private else None,
            accountant="claimed" if private else None,  # the guarantee is a claim of whoever trained the models
            finished=audit.targets[setting.architecture].model,
        )
    if not setting.trained and setting.dataset in audit.imported:
        delta = audit.imported[setting.dataset].delta
        return ReportedSetting(**named, private=delta is not None, delta=delta)
    if not setting.trained:
        study = audit.private_explanations[setting.dataset.removesuffix(EXPLANATION_SETS)]
        private = setting.epsilon != "inf"
        explained = ExplanationSets(black_box=setting.architecture, steps=study.steps, adjacency=study.adjacency)
        delta = study.delta if private else None
        return ReportedSetting(**named, design=design, private=private, delta=delta, explained=explained)
    mechanism = expand.resolved_mechanism(audit, setting.mechanism)
    architecture = expand.resolved_architecture(audit, setting.architecture)
    no_guarantee = mechanism.kind.no_guarantee
    noise = mechanism.model_extra or {}
    private = mechanism.kind.private and not no_guarantee
    floor = expand.floor_of(audit, setting.dataset, setting.architecture, setting.mechanism)
    swept = audit.mechanisms[setting.mechanism].swept
    own = dict(swept.values) if swept else {}
    return ReportedSetting(
        **named,
        **({"floor": floor} if floor else {}),
        design=design,
        private=private,
        no_guarantee=no_guarantee,
        delta=mechanism.delta if private else None,
        accountant=("claimed" if mechanism.kind.claimed else noise.get("accountant")) if private else None,
        clipping=noise.get("clipping") if private else None,
        model=architecture.model,
        measured=bool(expand.compared_explainers(audit, setting.architecture)),
        parameters=architecture.parameters | _swept_of_training(audit, setting) | own,
        swept=(dict(architecture.swept.values) if architecture.swept else {}) | own,
        swept_mechanism=swept.section if swept else "",
    )


def _swept_of_training(audit: Audit, setting: expand.Setting) -> dict[str, Parameter]:
    """Return a setting's values of the training keys that any sweep of the audit varies."""
    training = audit.training_of(setting.architecture, setting.mechanism)
    keys = sorted({key for one in audit.architectures.values() if one.swept for key in one.swept.training})
    return {key: value for key in keys if (value := getattr(training, key)) is not None}


class ReportSpec(Spec):
    """Tables, figures or the report of an audit."""

    audit: str
    settings: tuple[ReportedSetting, ...]
    likelihood: str
    """The likelihood whose results are the headline."""
    as_published: bool = False
    """Whether the published score of Huang et al. 2024 is among the attacks."""
    title: str = ""
    exposed: int = 0
    """Number of most exposed records in the report."""
    explanation_metrics: bool = False
    """Whether explanations were measured."""
    explanation_maps: bool = False
    """Whether maps of some records were stored."""
    curves: bool = False
    """Whether curves were measured on explanations."""
    intrinsic: tuple[str, ...] = ()
    """Data sets on which intrinsic explanations are compared with post-hoc ones."""
    evaluation: Evaluation = Evaluation()
    explainers: Explainers = Explainers()
    figures: Figures = Figures()
    margins: dict[str, float] = Field(default_factory=dict)
    """Largest differences between two mechanisms that are irrelevant, by metric."""
    studies: dict[str, Study] = Field(default_factory=dict)
    """Studies of private explanations by data set; not used by tables and figures."""
    policy: Policy | None = None
    """The policy that the report evaluates; not used by tables and figures."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The resolved config, which the report shows."""
    config_hash: str | None = None

    @classmethod
    def of(cls, audit: Audit) -> Self:
        """Specify an audit's tables and figures."""
        return cls(
            audit=audit.audit,
            title=audit.report.title or audit.audit,
            exposed=audit.report.exposed if audit.report.show_records else 0,
            figures=audit.report.figures,
            **({"margins": audit.report.margins} if audit.report.margins else {}),
            settings=tuple(reported_settings(audit)),
            likelihood=audit.attacks.likelihoods[0],
            as_published=asked(audit.attacks.methods, AUTHORS),
            explanation_metrics=bool(expand.compared_settings(audit)),
            explanation_maps=audit.explanation_metrics.shown > 0 and audit.report.show_records,
            curves=expand.measures_curves(audit),
            intrinsic=tuple(expand.intrinsic_datasets(audit)),
            evaluation=Evaluation(**audit.evaluation.model_dump()),
            explainers=Explainers(**audit.explainers.model_dump()),
            config=audit.model_dump(mode="json", exclude={"compute"}),
            config_hash=config_hash(audit),
        )

    @classmethod
    def with_studies(cls, audit: Audit) -> Self:
        """Specify an audit's report, which also shows private explanations and the policy's verdicts."""
        update: dict[str, Any] = {"studies": studies(audit)} if audit.private_explanations else {}
        if audit.report.policy:
            update["policy"] = load_policy(Path(audit.report.policy))
        return cls.of(audit).model_copy(update=update)


class PaperSpec(Spec):
    """A paper's tables and figures, with its printed numbers beside an audit's."""

    paper: str

    @classmethod
    def of(cls, audit: Audit) -> Self:
        """Specify the paper that an audit names."""
        return cls(paper=audit.report.paper)


def config_hash(audit: Audit) -> str:
    """Return the SHA-256 of the resolved config without `compute`, on which no result depends."""
    values = audit.model_dump(mode="json", exclude={"compute"})
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
