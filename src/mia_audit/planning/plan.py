"""Estimate hours, disk and memory from a config, the sizes of its pools and `Costs`.

The number of an audit's jobs, from a dry run of the workflow, and advice on jobs that are too short.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from mia_audit import SNAKEFILE
from mia_audit.config.expand import (
    Setting,
    blocks,
    compared_models,
    families_of,
    kept_models,
    needs_training_records,
    resolved_mechanism,
    settings,
)
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ExplanationMetricsSpec
from mia_audit.errors import UserError, first_line
from mia_audit.learners.naming import BUILT_IN
from mia_audit.planning.attacks import attack_seconds, attacked, pace
from mia_audit.planning.costs import Costs
from mia_audit.planning.requests import attack_memory_of, explaining_bytes, signals_bytes, training_bytes, weights_bytes
from mia_audit.planning.sizes import Size
from mia_audit.pools.store import draw_membership
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.sections import STATED

Models = Mapping[tuple[str, str], Mapping[str, Any]]
"""The content of architecture.json, by data set and architecture."""

START_UP = {"train": 5.0, "signals": 4.5, "pretrain": 4.0, "architecture": 4.0, "explanation_metrics": 3.0}
"""Seconds of processor time for imports in a job that starts its own process, by rule; `LIGHT` for all other rules."""

LIGHT = 1.2

WARM_UP = 16.0
"""Seconds of processor time for Snakemake and the imports of the warm worker."""

FORKED = {"train": 2.0, "signals": 0.6}
"""Seconds of processor time of overhead in a job that the warm worker forks, by rule; `FORK` for all other rules."""

FORK = 0.3

PER_SETTING, PER_STUDY = 8.0, 7.0
"""Seconds of processor time per setting, and per study of private explanations, for tables, figures and page."""

ON_GPU = ("pretrain", "train", "signals", "explanation_metrics")
"""Rules whose jobs compute on a GPU."""

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
    """What is not counted in the seconds, with the reason."""

    @property
    def total(self) -> float:
        """Seconds of all stages."""
        return sum(self.seconds.values())

    @property
    def on_gpu(self) -> float:
        """Seconds of the stages that use a GPU where one is asked for."""
        return sum(seconds for stage, seconds in self.seconds.items() if stage.split()[0] in ON_GPU)

    @property
    def dominant(self) -> str:
        """The stage that takes longest."""
        return max(self.seconds, key=lambda stage: self.seconds[stage]) if self.seconds else ""

    def add(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def store(self, kind: str, size: float) -> None:
        self.disk[kind] = self.disk.get(kind, 0) + round(size)

    def spread(self, rule: str, seconds: float) -> None:
        """Add seconds to the stages of a rule, in proportion to what they take, or to the start-up if it has none."""
        stages = {stage: known for stage, known in self.seconds.items() if known and stage.split()[0] == rule}
        for stage, known in (stages or {"start-up": 1.0}).items():
            self.add(stage, seconds * known / (sum(stages.values()) or 1.0))

    def repeat(self, times: int) -> None:
        """Count everything so far this many times, except the memory of a job."""
        self.models *= times
        self.seconds = {stage: times * seconds for stage, seconds in self.seconds.items()}
        self.disk = {kind: times * size for kind, size in self.disk.items()}

    def leave_out(self, what: str) -> None:
        if what not in self.untimed:
            self.untimed.append(what)

    def need(self, job: str, size: float) -> None:
        self.memory[job] = max(self.memory.get(job, 0), round(size))


def estimate(
    audit: Audit, sizes: Mapping[str, Size], models: Models, costs: Costs | None, jobs: Mapping[str, int]
) -> Plan:
    """Plan an audit with the pools' sizes and the models that `check` found, and the number of the workflow's jobs by rule.

    Without costs, nothing is timed.
    """
    plan = Plan()
    for size in sizes.values():
        plan.store("pools", size.bytes)
    for dataset in audit.datasets:
        for architecture in audit.architectures_of(dataset):
            section, model = audit.architectures[architecture], models.get((dataset, architecture))
            if section.pretrained == "public" and model:
                plan.store("weights", model["stored_bytes"])
                if costs:
                    count, training = sizes[dataset].public, section.pretraining
                    step = costs.step(model, Mechanism(mechanism="none"), training, min(training.batch, count))
                    plan.add("pretrain", training.epochs * ceil(count / training.batch) * step)
    for setting in settings(audit):
        model = models.get((setting.dataset, setting.architecture))
        if not setting.trained:
            continue
        if model and model["learner"] != BUILT_IN:
            model = None  # what its own fit takes is not known
        plan.models += audit.number_of_models(setting.mechanism)
        if model:
            _space(plan, audit, setting, sizes[setting.dataset], model)
        else:
            plan.leave_out(f"{setting.architecture}, which your own code trains (time one training, and multiply)")
        if model and costs:
            try:
                _setting(plan, audit, setting, size=sizes[setting.dataset], metadata=model, costs=costs)
            except UserError:
                raise
            except Exception as error:  # a plan of the rest is of more use than none
                what = f"{setting.architecture} under {setting.mechanism}"
                plan.leave_out(f"the rest of {what} ({type(error).__name__}: {first_line(error)})")
    for dataset in audit.private_explanations:
        plan.leave_out(f"the study of private explanations of {dataset}")
    every = list(attacked(audit, sizes))
    for one in every:
        cells = one.records * one.models
        plan.store("signals", signals_bytes(one.columns, cells, one.vectors))
        plan.store("scores", 5 * len(one.runs) * cells)
        plan.need("attacks", attack_memory_of(audit.attacks, one.records, one.models) * 1e6)
    if audit.compute.weights == "temporary":
        most = max(map(weights_bytes, models.values()), default=0)
        plan.store("weights of a setting until its signals are merged", audit.membership.models * most)
    plan.store("figures and report", SHOWN_BYTES * len(settings(audit)))
    slower = pace() if costs else 0.0
    if costs:
        for rule, seconds in attack_seconds(every, audit.evaluation.fprs).items() if every else ():
            plan.add(rule, seconds)
        seconds = PER_SETTING * len(settings(audit)) + PER_STUDY * len(audit.private_explanations)
        plan.add("report", slower * seconds)
    plan.repeat(max(1, len(audit.seeds)))
    if costs:
        plan.add("start-up", slower * WARM_UP)
        for rule, count in jobs.items():
            plan.spread(rule, slower * count * FORKED.get(rule, FORK))
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
    step = costs.step(metadata, mechanism, training, max(1, round(inside / per_epoch)))
    once = 0.0
    if private and not setting.epsilon.startswith(STATED):
        once = costs.calibration(mechanism, training, round(units), float(setting.epsilon))
    forward = size.records * costs.forward(metadata)
    if training.trainable == "head":  # models share one pass of the frozen layers, which also serves their evaluation
        return training.epochs * per_epoch * step, once + forward
    return training.epochs * per_epoch * step + forward, once


def _setting(plan: Plan, audit: Audit, setting: Setting, size: Size, metadata: Mapping[str, Any], costs: Costs) -> None:
    """Add the seconds of a setting's models: of their training, signals and measures."""
    count = audit.number_of_models(setting.mechanism)
    inside = _members(audit, setting.dataset, size.records)
    each, once = training_seconds(audit, setting, size, metadata, costs)
    plan.add(f"train {setting.mechanism}", count * each + len(blocks(audit, setting.mechanism)) * once)
    for family, options in families_of(audit)[setting.architecture].items():
        each = costs.signals(metadata, family, options, round(inside))
        plan.add(f"signals {family}", count * size.records * each)
        if needs_training_records(options["explainers"]):  # the model labels its own training records
            plan.add(f"signals {family}", count * inside * costs.forward(metadata))
    if measured := min(audit.explanation_metrics.records, size.records):
        spec = ExplanationMetricsSpec.from_audit(audit, setting.dataset, setting.architecture).model_dump()
        plan.add("explanation_metrics", compared_models(audit) * costs.measures(metadata, spec, measured))


def _space(plan: Plan, audit: Audit, setting: Setting, size: Size, metadata: Mapping[str, Any]) -> None:
    """Add the disk and memory that a setting's models take."""
    count, batch = audit.number_of_models(setting.mechanism), audit.compute.micro_batch
    private = resolved_mechanism(audit, setting.mechanism, setting.dataset).kind.per_record
    training = audit.training_of(setting.architecture, setting.mechanism)
    kept = kept_models(audit) if audit.compute.weights == "temporary" else count
    plan.store("weights", kept * weights_bytes(metadata))  # includes buffers such as random projections
    plan.need("train", training_bytes(metadata, training, batch, private))
    plan.need("signals", explaining_bytes(metadata, batch))


def _members(audit: Audit, dataset: str, records: int) -> float:
    """Return the mean size of a training set under the membership design."""
    return float(draw_membership(audit.membership, records, dataset, audit.seed).sum(axis=0).mean())


MOST = 0.1
"""Largest acceptable share of start-up in a job's time."""

SIZED_BY = {"train": "shadows_per_job", "signals": "blocks_explained_per_job"}
"""Rules whose jobs have a configurable size, with the key of `compute` for that size."""


def count_jobs(config: Path) -> dict[str, int]:
    """Return the number of a new audit's jobs by rule, counted by a dry run in the current folder, which changes no results.

    Raises UserError if the workflow does not accept the config.
    """
    words = ["--dryrun", "--quiet", "rules", "--cores", "1", "--nolock", "--scheduler", "greedy"]
    words += ["--forceall", "--profile", "none"]  # a profile that the user's environment names may set anything
    words += ["--snakefile", str(SNAKEFILE), "--configfile", str(config)]
    result = subprocess.run(
        [sys.executable, "-P", "-m", "snakemake", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        message = " ".join(f"{result.stderr}\n{result.stdout}".split())[-400:]
        raise UserError(f"{config}: the workflow does not accept this config: {message}")
    return read_counts(result.stdout + result.stderr)


def read_counts(output: str) -> dict[str, int]:
    """Read the table of jobs per rule that Snakemake prints, without `all` and the total."""
    lines = output.splitlines()
    rule = next((index for index, line in enumerate(lines) if line.startswith("---")), len(lines))
    counts = {}
    for line in lines[rule + 1 :]:
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            break
        counts[words[0]] = int(words[1])
    return {name: count for name, count in counts.items() if name not in ("all", "total")}


def advice(plan: Plan, audit: Audit, jobs: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for every rule whose jobs spend more than `MOST` of their time on start-up. It recommends a larger size."""
    for rule, key in SIZED_BY.items():
        work = sum(seconds for stage, seconds in plan.seconds.items() if stage.startswith(rule))
        start = START_UP.get(rule, LIGHT) * jobs.get(rule, 0)
        if not work or start <= MOST * (start + work):
            continue
        size = audit.compute.shadows_per_job if rule == "train" else audit.compute.blocks_explained_per_job
        wanted = ceil(size * start * (1 - MOST) / MOST / work)
        per_block = 1 if rule == "train" else audit.compute.shadows_per_job
        largest = ceil(audit.membership.models / per_block)
        if size >= largest:
            continue
        effect = "makes start-up a tenth" if wanted <= largest else "is the largest possible size"
        yield (
            f"On a cluster, {start / (start + work):.0%} of a {rule} job is start-up; compute.{key}: {min(wanted, largest)}"
            f" {effect}, if fewer jobs still keep the machines busy"
        )
