"""The memory and GPUs that jobs request; the rules, `mia-audit plan` and `mia-audit check` share these numbers.

The run file, which the workflow writes when it starts: how jobs compute, and the limits of the machines on which they run.

Jobs read this file and are not run again when it changes. Jobs that can never fit in memory, and models and signals that
cannot fit on disk, are rejected before any model is trained: models with an architecture.json at once, all others by the
job that writes this file (`mia-audit architecture`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field

from mia_audit.attacks.catalogue import Attacks, attacks, split
from mia_audit.config.expand import (
    families_of,
    floor_of,
    group_of,
    kept_models,
    resolved_mechanism,
    settings,
    trained_per_record,
)
from mia_audit.config.load import check_audit, parse
from mia_audit.config.schema import Audit, Compute
from mia_audit.errors import UserError, first_line
from mia_audit.explain.vectors import numbers
from mia_audit.foreign_json import read_object
from mia_audit.privacy.catalogue import HELD
from mia_audit.runtime.machine import Machine
from mia_audit.sections import Section
from mia_audit.signals.families import columns
from mia_audit.signals.name import read_signal
from mia_audit.training.section import Training

PROCESS_MEGABYTES = 400
"""Memory of an attack's process, with the blocks of records that it scores at once."""

BYTES_PER_CELL = 40
"""Memory of an attack on one signal, per record × model (benchmarks/stage_memory.py)."""

SEVERAL_BYTES_PER_CELL, MOST_BYTES_PER_CELL = {"joint-lrt": 60}, 200
"""Memory of attacks that may read several signals, for two of them: by name, and of all others."""

BYTES_PER_RECORD, JOINT_BYTES_PER_RECORD = 3_000, 12_000
"""Memory of histograms and weights of types per record, whatever the number of models: for one signal, and for two jointly."""

LEARNING_TYPES = {"blend", "types"}
"""Likelihoods that learn the records' types."""

DRAWING_MEGABYTES = 300
"""Memory of drawing and layout, in addition to that of an attack: tables, figures and report of the digits take 470 to 560 MB."""

UNKNOWN_MEGABYTES = 4000
"""Memory of an attack if the number of records is unknown: enough for 60 million records × models with `joint-lrt`, 90 million without."""

MODEL_MEGABYTES = 2000
"""Memory of a job that runs the user's own models, or private explanations of a data set."""

PROCESS_BYTES = 700 * 10**6
"""Memory of a process that has imported torch and timm."""

GPU_PROCESS_BYTES = 4000 * 10**6
"""Host memory of a process that computes on a GPU, excluding the model's weights."""

POOL_MEGABYTES = 2500
"""Memory of a job that builds a pool of images: that of the process, and that of the images decoded at once (`pools.images`)."""

WEIGHTS_MEGABYTES = 4000
"""Memory of a job that reads published weights."""


def attack_memory(audit: Audit, dataset: str) -> int:
    """Return the megabytes for attacking or evaluating a setting of a data set, with one signal and the scores of one attack in memory at a time."""
    section = audit.datasets.get(dataset)
    if section is None or section.records is None:
        return UNKNOWN_MEGABYTES
    return attack_memory_of(audit.attacks, section.records, audit.membership.models)


def attack_memory_of(section: Attacks, records: int, models: int) -> int:
    """Return the megabytes of the largest of a config's attacks on this many records and models."""
    learns = not LEARNING_TYPES.isdisjoint(section.likelihoods)
    each = (_bytes_per_record(split(method)[0], models, learns) for method in section.methods)
    return PROCESS_MEGABYTES + ceil(records * max(each, default=0) / 1e6)


def _bytes_per_record(attack: str, models: int, learns: bool) -> int:
    if attacks[attack].vectors or not attacks[attack].several:  # vectors are read block by block
        return models * BYTES_PER_CELL + learns * BYTES_PER_RECORD
    return models * SEVERAL_BYTES_PER_CELL.get(attack, MOST_BYTES_PER_CELL) + learns * JOINT_BYTES_PER_RECORD


def report_memory(audit: Audit) -> int:
    """Return the megabytes for tables, figures and report, which hold the scores of one attack on the largest setting."""
    return DRAWING_MEGABYTES + max(attack_memory(audit, dataset) for dataset in [*audit.datasets, *audit.imported])


def grown(first: int, attempt: int, limit: int | None = None) -> int:
    """Return the megabytes of an attempt, the first of which requests `first`: as much again, up to `limit`, the largest machine's."""
    return min(attempt * first, limit) if limit else attempt * first


def training_bytes(metadata: Mapping[str, Any], training: Training, micro_batch: int, private: bool) -> int:
    """Return the bytes for training a model on a CPU, from its architecture.json."""
    weights = 4 * int(metadata["parameters"])
    per_record = min(micro_batch * weights, max(HELD["cpu"], 4 * weights)) if private else 0
    trained_with = 3 * weights + 3 * per_record  # gradients and the optimizer's state
    whole = bool(metadata.get("batch_norm")) and not private  # BatchNorm needs all records of a batch at once
    needed = explaining_bytes(metadata, training.batch if whole else min(micro_batch, training.batch)) + trained_with
    checked = explaining_bytes(metadata, CHECKED) if private and training.per_record != "vmap" else 0
    return max(needed, checked)


CHECKED = 28
"""Records whose graphs take the memory of the check before book-keeping: seven in float64, and factors of their gradients as large."""


def explaining_bytes(metadata: Mapping[str, Any], records: int) -> int:
    """Return the bytes for a pass of this many records on a CPU: the process, the model with its buffers, and the graph."""
    kept: int = metadata["stored_bytes"] + records * metadata["activation_bytes"]
    return PROCESS_BYTES + kept


def job_memory(audit: Audit, described: str, on_cpu: OfBatch, attempt: int, limit: int | None = None) -> int:
    """Return the megabytes requested by a job on models; `described` is their architecture.json.

    Every further attempt adds the same amount, up to `limit`, the memory of the largest machine. Raises
    FileNotFoundError if the file does not exist yet: Snakemake calls this function again when the job is ready.
    """
    Path(described).stat()  # a missing file stays Python's error, by which Snakemake plans what follows later
    metadata = read_object(Path(described), DESCRIBED)
    return grown(_first(audit, metadata, on_cpu, audit.compute.micro_batch), attempt, limit)


def training_of(audit: Audit, architecture: str, mechanism: str) -> OfBatch:
    """Return what gives the bytes for training an architecture's models under a mechanism."""
    training, private = audit.training_of(architecture, mechanism), resolved_mechanism(audit, mechanism).kind.per_record
    return lambda metadata, batch: training_bytes(metadata, training, batch, private)


def pretraining_of(audit: Audit, architecture: str) -> OfBatch:
    """Return what gives the bytes for training an architecture's public model."""
    training = audit.architectures[architecture].pretraining
    return lambda metadata, batch: training_bytes(metadata, training, batch, private=False)


def refuse_too_large(audit: Audit, architecture: str, metadata: Mapping[str, Any], limit: int) -> None:
    """Raise UserError if the first attempt of a job on an architecture requests more megabytes than any machine has.

    The message names the largest compute.micro_batch with which all jobs on the architecture fit. A user's own model is
    not checked.
    """
    if "activation_bytes" not in metadata:
        return
    stages: dict[str, OfBatch] = {
        f"training under {mechanism}": training_of(audit, architecture, mechanism)
        for mechanism in audit.budgets(architecture)
    }
    if audit.architectures[architecture].pretrained == "public":
        stages["pretraining"] = pretraining_of(audit, architecture)
    stages["explaining"] = explaining_bytes

    def asked(batch: int) -> dict[str, int]:
        return {stage: _first(audit, metadata, of_batch, batch) for stage, of_batch in stages.items()}

    batch = audit.compute.micro_batch
    stage, most = max(asked(batch).items(), key=lambda item: item[1])
    if most <= limit:
        return
    fits = next((few for few in _halves(batch) if max(asked(few).values()) <= limit), None)
    smaller = "training.batch, which BatchNorm needs whole," if metadata.get("batch_norm") else "model"
    change = (
        f"set compute.micro_batch: {fits}"
        if fits
        else f"no compute.micro_batch is small enough: choose a smaller {smaller}"
    )
    raise UserError(
        f"architectures.{architecture}: {stage} takes about {most:,} MB with compute.micro_batch: {batch}, but jobs may have"
        f" {limit:,} MB: {change}, or state the memory of a larger machine or node in compute.memory_mb"
    )


OfBatch = Callable[[Mapping[str, Any], int], int]
"""The bytes of a job on a CPU, from the model's architecture.json and the number of records in memory at once."""


def _halves(batch: int) -> Iterator[int]:
    while batch > 1:
        batch //= 2
        yield batch


def _first(audit: Audit, metadata: Mapping[str, Any], on_cpu: OfBatch, batch: int) -> int:
    """Return the megabytes of a first attempt."""
    if "activation_bytes" not in metadata:  # it is a user's own model
        return MODEL_MEGABYTES
    on_gpu = audit.compute.device.startswith("cuda")
    needed = GPU_PROCESS_BYTES + metadata["stored_bytes"] if on_gpu else on_cpu(metadata, batch)
    return ceil(needed / 1e6)


class Requests:
    """The resources that rules request, as Snakemake asks for them: functions of a job's wildcards, inputs and attempt."""

    def __init__(self, audit: Audit, machine: Machine) -> None:
        self._audit, self._machine = audit, machine

    def placed(self, rule: str) -> Audit:
        """Return the audit on the device of a rule's jobs."""
        on_gpu = {"compute": self._audit.compute.model_copy(update={"device": "cuda"})}
        return self._audit.model_copy(update=on_gpu) if self._machine.gpus(rule) else self._audit

    def grown(self, megabytes: int) -> Callable[..., int]:
        """Request this memory, and as much again for every further attempt, up to what there is."""
        return lambda wildcards, attempt: grown(megabytes, attempt, self._machine.memory)

    def attack(self, wildcards: Any, attempt: int) -> int:
        """Request the memory for attacking or evaluating a setting."""
        return grown(attack_memory(self._audit, wildcards.dataset), attempt, self._machine.memory)

    def models(self, rule: str, memory: int | Callable[..., int] = MODEL_MEGABYTES) -> dict[str, Any]:
        """Request what a job needs that computes with models: memory, and a GPU where there is one."""
        return {"mem_mb": memory, "gpu": lambda wildcards: self._machine.gpus(rule)}

    def training(self, rule: str) -> dict[str, Any]:
        """Request what training shadow models takes."""
        return self._on_models(rule, lambda audit, names: training_of(audit, names.architecture, names.mechanism))

    def pretraining(self, rule: str) -> dict[str, Any]:
        """Request what training the public model takes."""
        return self._on_models(rule, lambda audit, names: pretraining_of(audit, names.architecture))

    def explaining(self, rule: str) -> dict[str, Any]:
        """Request what explaining records takes."""
        return self._on_models(rule, lambda audit, names: explaining_bytes)

    def _on_models(self, rule: str, of_batch: Callable[[Audit, Any], OfBatch]) -> dict[str, Any]:
        def memory(wildcards: Any, input: Any, attempt: int) -> int:
            audit = self.placed(rule)
            return job_memory(audit, input.architecture, of_batch(audit, wildcards), attempt, self._machine.memory)

        return self.models(rule, memory)


FILE = "run.json"

Usage = Callable[[Path], "tuple[int, int, int]"]
"""Returns total, used and free bytes of the file system of a folder."""


class RunFile(Section):
    """How the jobs of an audit compute, and their limits; the defaults are those of a command that is called by hand."""

    compute: Compute = Compute()
    private: tuple[str, ...] = ()
    """Architectures that some mechanism trains on per-record gradients."""
    floors: dict[str, float] = Field(default_factory=dict)
    """The test accuracy that a setting's first models must reach, by {dataset}/{architecture}/{mechanism}."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The config, with the device on which models are trained."""
    megabytes: int | None = None
    """The largest memory that a job may have, if it is known."""

    @classmethod
    def read(cls, path: Path | None) -> RunFile:
        """Read a run file; without one, return the defaults. UserError if it is no run file."""
        if path is None:
            return cls()
        try:
            return parse(cls, json.loads(path.read_text(encoding="utf-8")), str(path))
        except (OSError, ValueError):
            raise UserError(f"{path}: expected the run file that the workflow writes when it starts") from None


def write(path: Path, audit: Audit, config: Mapping[str, Any], device: str, megabytes: int | None) -> None:
    """Write the run file of an audit, given its config, the device on which it trains, and the largest memory of a job, if it is known."""
    from mia_audit.storage.atomic import write_text  # planning imports no pyarrow

    trained = {(one.dataset, one.architecture, one.mechanism) for one in settings(audit) if one.trained}
    run = {
        "compute": audit.compute.model_dump(mode="json"),
        "private": [name for name in audit.architectures if trained_per_record(audit, name)],
        "floors": {"/".join(names): floor for names in sorted(trained) if (floor := floor_of(audit, *names))},
        "config": {**config, "compute": {**config.get("compute", {}), "device": device}},
        "megabytes": megabytes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(run, default=str) + "\n")


DESCRIBED = "a file that `mia-audit architecture` wrote"


def refuse(path: Path, results: Path) -> None:
    """Raise UserError for the first architecture in the results whose jobs fit no machine, or whose models do not fit on disk."""
    run = RunFile.read(path)
    audit = check_audit(run.config, str(path))
    for described in sorted(results.glob("*/*/architecture.json")):
        metadata = read_object(described, DESCRIBED)
        try:
            _refuse_model(audit, run.megabytes, described.parent, metadata)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"{described}: damaged ({reason}); expected {DESCRIBED}; delete it") from None


def refuse_model(run: RunFile, group: Path, metadata: Mapping[str, Any], records: int) -> None:
    """Do what `refuse` does for one architecture. `group` is its folder, and `records` the number of records in its pool."""
    if run.config:
        _refuse_model(check_audit(run.config, FILE), run.megabytes, group, metadata, records)


def _refuse_model(
    audit: Audit, megabytes: int | None, group: Path, metadata: Mapping[str, Any], records: int = 0
) -> None:
    dataset, architecture = group.parent.name, group.name
    if architecture not in audit.architectures or dataset not in audit.datasets:
        return  # a model of an earlier config
    if megabytes:
        refuse_too_large(audit, architecture, metadata, megabytes)
    refuse_full_disk(audit, dataset, architecture, metadata=metadata, group=group, records=records)


def refuse_full_disk(
    audit: Audit,
    dataset: str,
    architecture: str,
    metadata: Mapping[str, Any],
    group: Path,
    records: int,
    usage: Usage = shutil.disk_usage,
) -> None:
    """Raise UserError if the models that are still to be trained, with their signals, need more bytes than are free."""
    counts = [audit.number_of_models(setting.mechanism) for setting in group_of(audit, dataset, architecture)]
    models = sum(counts)
    there = sum(1 for path in group.glob("*/models/shadow-*") if path.is_dir())
    of_model = families_of(audit)[architecture]
    names = [name for family, options in of_model.items() for name in columns(family, options)]
    stored = sum(not read_signal(name).is_vector for name in names)
    left = max(models - there, 0)
    weights = weights_bytes(metadata) * min(left, most_weights(audit, counts))
    vectors = vector_numbers(of_model, metadata["input_shape"])
    needed, free = weights + signals_bytes(stored, records, vectors) * left, usage(existing(group))[2]
    if needed > free:
        raise UserError(
            f"architectures.{architecture} on {dataset}: {models:,} models, of which {there:,} exist, need another"
            f" {needed / 1e9:,.1f} GB with their signals, but {free / 1e9:,.1f} GB are free at {group}: make room, or lower"
            " membership.models"
        )


def most_weights(audit: Audit, counts: Sequence[int]) -> int:
    """Return how many models have weights on disk at once, from the settings' numbers of models.

    If weights are temporary, these are all models of the largest setting, and the kept models of the others.
    """
    temporary = audit.compute.weights == "temporary"
    return max(counts) + kept_models(audit) * (len(counts) - 1) if temporary else sum(counts)


def weights_bytes(metadata: Mapping[str, Any]) -> int:
    """Return the bytes that a shadow model's weights take on disk; 0 if the user's own code stores them."""
    return int(metadata.get("stored_bytes", 0))


def signals_bytes(signals: int, cells: int, vectors: int = 0) -> int:
    """Return the bytes of signals, and of this many numbers in vectors, for this many records × models.

    They are in the tables of models and in that of the setting.
    """
    return 2 * (4 * (signals + 3) + 2 * vectors) * cells  # the columns in addition to shadow, record and member


def vector_numbers(of_model: Mapping[str, Mapping[str, Any]], shape: Sequence[int]) -> int:
    """Return the numbers in the vectors of a record that a model's families of signals store."""
    return sum(
        numbers(shape, options) * sum(read_signal(name).is_vector for name in columns(family, options))
        for family, options in of_model.items()
        if "vectors" in options
    )


def existing(path: Path) -> Path:
    """Return the nearest folder that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path
