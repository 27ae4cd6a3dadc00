"""From a config, the sizes of its pools and the costs of a step to hours, disk and memory; arithmetic alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from mia_audit.attacks.files import DIAGNOSTIC
from mia_audit.attacks.run import plan as attack_runs
from mia_audit.attacks.signal import describe
from mia_audit.config.schema import Audit, Mechanism
from mia_audit.config.settings import (
    Setting,
    blocks,
    explained_settings,
    families_of,
    interpretability_slice,
    interpreted_models,
    of_members,
    resolved_architecture,
    resolved_mechanism,
    settings,
)
from mia_audit.explain.families import OUTPUTS, SUMMARIES, columns
from mia_audit.explain.private_local.membership import STEM
from mia_audit.membership import draw_membership
from mia_audit.models import describe as described
from mia_audit.planning.costs import Costs, activation_bytes
from mia_audit.planning.linear import Linear
from mia_audit.planning.sizes import Size
from mia_audit.training.per_record import HELD


@dataclass(frozen=True)
class Model:
    """An architecture on a data set: its architecture.json, and the bytes that a record's forward pass keeps for the way back."""

    facts: Mapping[str, Any]
    activation: int


Models = Mapping[tuple[str, str], Model]
"""By data set and architecture."""

START_UP = {
    "train": 5.0,
    "signals": 4.5,
    "pretrain": 4.0,
    "architecture": 4.0,
    "interpretability": 3.0,
    "figures": 3.0,
    "report": 3.0,
    "private_report": 7.0,
}
"""Seconds of processor time until a job of a rule has what it imports; `LIGHT` for the others."""

LIGHT = 1.2

PER_SETTING = {"figures": 2.0, "report": 1.0, "tables": 0.1}
"""Seconds that the last jobs work on one setting."""

SHOWN_BYTES = 750_000
"""Disk that a setting takes in figures and report."""

PER_CELL = 1.5e-6
"""Seconds to score, store and evaluate one record of one target under one attack."""

PROCESS_BYTES = 600 * 2**20
"""Memory of a process that has imported torch and timm, before it does anything."""


@dataclass
class Plan:
    """What an audit takes: seconds of one process by stage, bytes on disk by kind, bytes of memory by kind of job."""

    models: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    disk: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

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
    """Build every model once on every pool's shape; raises UserError for one that does not fit."""
    models = {}
    for dataset, size in sizes.items():
        for name in audit.architectures:
            section = resolved_architecture(audit, name)
            facts = described(name, section.model, section.parameters, size.shape, size.classes)
            models[dataset, name] = Model(facts, activation_bytes(facts))
    return models


def estimate(
    audit: Audit,
    sizes: Mapping[str, Size],
    models: Models,
    costs: Costs,
    jobs: Mapping[str, int],
) -> Plan:
    """Plan an audit on pools of those sizes; `jobs` are the workflow's, by rule."""
    plan = Plan()
    for size in sizes.values():
        plan.store("pools", size.bytes)
    for dataset in audit.datasets:
        for architecture, section in audit.architectures.items():
            if section.pretrained == "public":
                key = (dataset, architecture)
                cost = costs.step(models[key].facts, Mechanism(mechanism="none"), section.pretraining)
                count = sizes[dataset].public
                steps = section.pretraining.epochs * ceil(count / section.pretraining.batch)
                plan.add("pretrain", _training(cost, steps, section.pretraining.epochs * count))
                plan.store("weights", 4 * models[key].facts["parameters"])
    for setting in settings(audit):
        if setting.trained:
            _setting(plan, audit, setting, sizes[setting.dataset], models[setting.dataset, setting.architecture], costs)
    for dataset in audit.private_explanations:
        _study(plan, audit, dataset, sizes[dataset], models, costs)
    plan.add("report", sum(PER_SETTING.values()) * len(settings(audit)))
    plan.store("figures and report", SHOWN_BYTES * len(settings(audit)))
    plan.add("start-up", sum(count * START_UP.get(rule, LIGHT) for rule, count in jobs.items()))
    return plan


def _setting(plan: Plan, audit: Audit, setting: Setting, size: Size, model: Model, costs: Costs) -> None:
    count, facts = audit.membership.models, model.facts
    mechanism = resolved_mechanism(audit, setting.mechanism)
    training = audit.training_of(setting.architecture, setting.mechanism)
    inside = _members(audit, setting.dataset, size.records)
    private = mechanism.mechanism != "none"
    per_epoch = max(1, round(inside / training.batch)) if private else ceil(inside / training.batch)
    step = costs.step(facts, mechanism, training)
    stage = f"train {setting.mechanism}"
    plan.models += count
    plan.add(stage, count * _training(step, training.epochs * per_epoch, training.epochs * inside))
    plan.add(stage, count * size.records * costs.forward(facts))
    if private:
        once = costs.calibration(mechanism, training, round(inside), float(setting.epsilon))
        plan.add(stage, len(blocks(audit)) * once)
    weights, batch = 4 * facts["parameters"], audit.compute.batch
    plan.store("weights", count * weights)
    gradients = min(batch * weights, max(HELD["cpu"], 4 * weights)) if private else 0
    at_once = min(batch, training.batch) * model.activation
    plan.need("train", PROCESS_BYTES + 4 * weights + 2 * gradients + at_once)
    plan.need("signals", PROCESS_BYTES + weights + batch * model.activation)
    of_model = families_of(audit)[setting.architecture]
    for family, options in of_model.items():
        each = costs.signals(facts, family, options, round(inside))
        plan.add(f"signals {family}", count * size.records * each)
        if of_members(options["explainers"]):  # whose labels the model says
            plan.add(f"signals {family}", count * inside * costs.forward(facts))
    if measured := min(audit.interpretability.records, size.records):
        spec = json.loads(interpretability_slice(audit, f"{setting.dataset}/{setting.architecture}"))
        plan.add("interpretability", interpreted_models(audit) * costs.measures(facts, spec, measured))
    every = [name for family, options in of_model.items() for name in columns(family, options)]
    _attacks(plan, audit, every, count * size.records)


def _study(plan: Plan, audit: Audit, dataset: str, size: Size, models: Models, costs: Costs) -> None:
    """What private explanations of a data set's black boxes take, and attacks on their explanation sets."""
    study, count = audit.private_explanations[dataset], audit.membership.models
    timed = costs.study(study, size)
    if timed is None:
        return
    for name in study.black_boxes:
        plan.add("private explanations", timed.black_box(name) + timed.answers(reference=False))
        for epsilon in study.attacked:
            plan.add("private explanations", timed.attacked(epsilon, count))
            _attacks(plan, audit, ["fit_error", *(f"{STEM}_{summary}" for summary in SUMMARIES)], count * size.records)
    for one in explained_settings(audit, dataset).values():
        labelling = size.records * costs.forward(models[dataset, one.architecture].facts)
        beside = any("inf" in budgets for budgets in audit.budgets(one.architecture).values())
        plan.add("private explanations", labelling + timed.answers(reference=beside))


def _training(step: Linear, steps: float, records: float) -> float:
    return step.fixed * steps + step.each * records


def _attacks(plan: Plan, audit: Audit, every: Sequence[str], cells: int) -> None:
    """What comes after a setting's signals, of that many cells each: records × models."""
    attacked = [name for name in every if name not in OUTPUTS[:2] and not name.endswith(DIAGNOSTIC)]
    runs = len(attack_runs(audit.attacks.methods, [describe(name) for name in attacked], audit.attacks.variances))
    plan.add("attacks", PER_CELL * runs * cells)
    plan.store("signals", 2 * 4 * (len(every) + 3) * cells)  # the blocks' tables, and the setting's
    plan.store("scores", 5 * runs * cells)
    plan.need("attacks", PROCESS_BYTES / 2 + 8 * 12 * cells)


def _members(audit: Audit, dataset: str, records: int) -> float:
    """Mean size of a training set, by the design itself."""
    return float(draw_membership(audit.membership, records, dataset, audit.seed).sum(axis=0).mean())
