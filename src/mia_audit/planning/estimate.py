"""Estimate hours, disk and memory from a config, the sizes of its pools and `Costs`. Nothing is timed here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from typing import Any

from mia_audit.config.expand import (
    Setting,
    blocks,
    compared_models,
    explained_settings,
    families_of,
    kept_models,
    needs_training_records,
    resolved_architecture,
    resolved_mechanism,
    settings,
)
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ExplanationMetricsSpec
from mia_audit.learners.naming import BUILT_IN
from mia_audit.models import describe as described
from mia_audit.planning.attacks import attacked
from mia_audit.planning.costs import Costs
from mia_audit.planning.limits import signals_bytes, weights_bytes
from mia_audit.planning.linear import Linear
from mia_audit.planning.requests import attack_memory_of, explaining_bytes, training_bytes
from mia_audit.planning.sizes import Size
from mia_audit.pools.membership import draw_membership
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.sections import STATED

Models = Mapping[tuple[str, str], Mapping[str, Any]]
"""The content of architecture.json, by data set and architecture."""

START_UP = {
    "train": 5.0,
    "preflight": 5.0,
    "signals": 4.5,
    "pretrain": 4.0,
    "architecture": 4.0,
    "explanation_metrics": 3.0,
}
"""Seconds of processor time for imports in a job that starts its own process, by rule; `LIGHT` for all other rules."""

LIGHT = 1.2

WARM_UP = 12.0
"""Seconds of processor time for Snakemake and the imports of the warm worker."""

FORKED = {"train": 2.0, "signals": 1.1, "private_report": 7.0}
"""Seconds of processor time of overhead in a job that the warm worker forks, by rule; `FORK` for all other rules."""

FORK = 0.5

PER_SETTING = {"figures": 7.0, "report": 1.5, "tables": 2.5}
"""Seconds of processor time per setting in the audit's last jobs, by rule."""

SHOWN_BYTES = 750_000
"""Bytes of a setting's figures and its part of the report."""


@dataclass
class Plan:
    """The cost of an audit: seconds of one process by stage, bytes on disk by kind, bytes of memory by kind of job."""

    models: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    untimed: list[str] = field(default_factory=list)
    """Architectures whose training and signals are not timed, because the user's own code computes them."""

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())

    @property
    def dominant(self) -> str:
        """The stage that takes longest."""
        return max(self.seconds, key=lambda stage: self.seconds[stage]) if self.seconds else ""

    def add(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def store(self, kind: str, size: float) -> None:
        self.disk[kind] = self.disk.get(kind, 0) + round(size)

    def need(self, job: str, size: float) -> None:
        self.memory[job] = max(self.memory.get(job, 0), round(size))


def models_of(audit: Audit, sizes: Mapping[str, Size]) -> Models:
    """Build every built-in model once on every pool's shape; raises UserError for a model that does not fit."""
    models = {}
    for dataset, size in sizes.items():
        for name in audit.architectures_of(dataset):
            if audit.architectures[name].learner != BUILT_IN:
                continue
            section = resolved_architecture(audit, name)
            models[dataset, name] = described(name, section.model, section.parameters, size.shape, size.classes)
    return models


def estimate(
    audit: Audit,
    sizes: Mapping[str, Size],
    models: Models,
    costs: Costs,
    jobs: Mapping[str, int],
) -> Plan:
    """Plan an audit on pools of these sizes; `jobs` has the number of the workflow's jobs by rule."""
    plan = Plan()
    for size in sizes.values():
        plan.store("pools", size.bytes)
    for dataset in audit.datasets:
        for architecture in audit.architectures_of(dataset):
            section = audit.architectures[architecture]
            if section.pretrained == "public":
                key = (dataset, architecture)
                cost = costs.step(models[key], Mechanism(mechanism="none"), section.pretraining)
                count = sizes[dataset].public
                steps = section.pretraining.epochs * ceil(count / section.pretraining.batch)
                plan.add("pretrain", _training(cost, steps, section.pretraining.epochs * count))
                plan.store("weights", models[key]["stored_bytes"])
    for setting in settings(audit):
        model = models.get((setting.dataset, setting.architecture))
        if setting.trained and model:
            _setting(plan, audit, setting, sizes[setting.dataset], model, costs)
        elif setting.trained:
            _foreign(plan, audit, setting)
    for dataset in audit.private_explanations:
        _study(plan, audit, dataset, sizes[dataset], models, costs)
    _attacks(plan, audit, sizes, costs)
    if audit.compute.weights == "temporary":
        most = max((model["stored_bytes"] for model in models.values()), default=0)
        plan.store("weights of a setting until its signals are merged", audit.membership.models * most)
    pace = costs.pace()
    plan.add("report", pace * sum(PER_SETTING.values()) * len(settings(audit)))
    plan.store("figures and report", SHOWN_BYTES * len(settings(audit)))
    start_up = WARM_UP + sum(count * FORKED.get(rule, FORK) for rule, count in jobs.items())
    plan.add("start-up", pace * start_up)
    return plan


def training_seconds(
    audit: Audit, setting: Setting, size: Size, metadata: Mapping[str, Any], costs: Costs
) -> tuple[float, float]:
    """Return the seconds to train and evaluate one model of a setting, and the additional seconds per job."""
    mechanism = resolved_mechanism(audit, setting.mechanism, setting.dataset)
    training = audit.training_of(setting.architecture, setting.mechanism)
    inside = _members(audit, setting.dataset, size.records)
    private = mechanism.kind.per_record
    units = inside * size.persons / size.records if mechanism.by_person and size.persons else inside
    per_epoch = max(1, round(units / training.batch)) if private else ceil(inside / training.batch)
    step = costs.step(metadata, mechanism, training)
    each = _training(step, training.epochs * per_epoch, training.epochs * inside)
    once = 0.0
    if private and not setting.epsilon.startswith(STATED):
        once = costs.calibration(mechanism, training, round(units), float(setting.epsilon))
    return each + size.records * costs.forward(metadata), once


def _setting(plan: Plan, audit: Audit, setting: Setting, size: Size, metadata: Mapping[str, Any], costs: Costs) -> None:
    count = audit.number_of_models(setting.mechanism)
    mechanism = resolved_mechanism(audit, setting.mechanism, setting.dataset)
    training = audit.training_of(setting.architecture, setting.mechanism)
    private = mechanism.kind.per_record
    inside = _members(audit, setting.dataset, size.records)
    each, once = training_seconds(audit, setting, size, metadata, costs)
    plan.models += count
    plan.add(f"train {setting.mechanism}", count * each + len(blocks(audit, setting.mechanism)) * once)
    batch = audit.compute.micro_batch
    kept = kept_models(audit) if audit.compute.weights == "temporary" else count
    plan.store("weights", kept * weights_bytes(audit, metadata))  # includes buffers such as random projections
    plan.need("train", training_bytes(metadata, training, batch, private))
    plan.need("signals", explaining_bytes(metadata, batch))
    of_model = families_of(audit)[setting.architecture]
    for family, options in of_model.items():
        each = costs.signals(metadata, family, options, round(inside))
        plan.add(f"signals {family}", count * size.records * each)
        if needs_training_records(options["explainers"]):  # the model labels its own training records
            plan.add(f"signals {family}", count * inside * costs.forward(metadata))
    if measured := min(audit.explanation_metrics.records, size.records):
        spec = ExplanationMetricsSpec.of(audit, setting.dataset, setting.architecture).model_dump()
        plan.add("explanation_metrics", compared_models(audit) * costs.measures(metadata, spec, measured))


def _foreign(plan: Plan, audit: Audit, setting: Setting) -> None:
    """Add a setting whose models the user's own code trains, for an unknown time."""
    plan.models += audit.number_of_models(setting.mechanism)
    if setting.architecture not in plan.untimed:
        plan.untimed.append(setting.architecture)


def _study(plan: Plan, audit: Audit, dataset: str, size: Size, models: Models, costs: Costs) -> None:
    """Add a study of private explanations of a data set's black boxes, and explanations from their explanation sets."""
    study, count = audit.private_explanations[dataset], audit.membership.models
    timed = costs.study(study, size)
    if timed is None:
        return
    answers, explaining = cache(timed.answers), cache(timed.attacked)  # both are the same for all black boxes
    for name in study.black_boxes:
        plan.add("private explanations", timed.black_box(name) + answers(False))
        for epsilon in study.attacked:
            plan.add("private explanations", explaining(epsilon, count))
    for one in explained_settings(audit, dataset).values():
        model = models.get((dataset, one.architecture))
        labelling = size.records * costs.forward(model) if model else 0.0
        beside = any("inf" in budgets for budgets in audit.budgets(one.architecture).values())
        plan.add("private explanations", labelling + answers(beside))


def _training(step: Linear, steps: float, records: float) -> float:
    return step.fixed * steps + step.each * records


def _attacks(plan: Plan, audit: Audit, sizes: Mapping[str, Size], costs: Costs) -> None:
    """Add the stages after the signals."""
    every = list(attacked(audit, sizes))
    if every:
        plan.add("attacks", costs.attacks(every, audit.evaluation.fprs))
    for one in every:
        cells = one.records * one.models
        plan.store("signals", signals_bytes(one.columns, cells))
        plan.store("scores", 5 * len(one.runs) * cells)
        plan.need("attacks", attack_memory_of(audit.attacks, one.records, one.models) * 1e6)


def _members(audit: Audit, dataset: str, records: int) -> float:
    """Return the mean size of a training set under the membership design."""
    return float(draw_membership(audit.membership, records, dataset, audit.seed).sum(axis=0).mean())
