"""What a job asks Snakemake for: memory and GPUs. The rules, `mia-audit plan` and `mia-audit doctor` share it."""

import json
from collections.abc import Callable, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from mia_audit.config.expand import resolved_mechanism
from mia_audit.config.schema import Audit
from mia_audit.privacy.catalogue import HELD
from mia_audit.training.section import Training

PROCESS_MEGABYTES, BYTES_PER_CELL = 400, 115
"""Memory of an attack: of the process, and per record × model (benchmarks/stage_memory.py)."""

UNKNOWN_MEGABYTES = 4000
"""Memory of an attack where the config does not say how many records there are: enough for 30 million records × models."""

MODEL_MEGABYTES = 2000
"""Memory of a job that trains or explains models of somebody else's code, or private explanations of a data set."""

PROCESS_BYTES = 700 * 10**6
"""Memory of a process that has imported torch and timm."""

GPU_PROCESS_BYTES = 4000 * 10**6
"""Host memory of a process that computes on a GPU, beside the model's weights."""

POOL_MEGABYTES = 2500
"""Memory of a job that makes a pool of images: of the process, and of the images that it decodes at once (`pools.images`)."""

WEIGHTS_MEGABYTES = 4000
"""Memory of a job that reads published weights."""


def attack_memory(audit: Audit, dataset: str) -> int:
    """Return the megabytes that attacking or evaluating a setting takes at most: one signal, and the scores of one attack."""
    section = audit.datasets.get(dataset)
    if section is None or section.records is None:
        return UNKNOWN_MEGABYTES
    return attack_memory_of(section.records * audit.membership.models)


def attack_memory_of(cells: int) -> int:
    """Return the megabytes that an attack takes on so many cells, records × models."""
    return PROCESS_MEGABYTES + ceil(cells * BYTES_PER_CELL / 1e6)


def report_memory(audit: Audit) -> int:
    """Return the megabytes that figures and report take at most: the scores of one attack on the largest setting."""
    return max(attack_memory(audit, dataset) for dataset in [*audit.datasets, *audit.imported])


def training_bytes(metadata: Mapping[str, Any], training: Training, micro_batch: int, private: bool) -> int:
    """Return the bytes that training a model takes on a CPU, by its architecture.json."""
    weights = 4 * int(metadata["parameters"])
    per_record = min(micro_batch * weights, max(HELD["cpu"], 4 * weights)) if private else 0
    trained_with = 3 * weights + 2 * per_record  # gradients and the optimizer's state
    return explaining_bytes(metadata, min(micro_batch, training.batch)) + trained_with


def explaining_bytes(metadata: Mapping[str, Any], records: int) -> int:
    """Return the bytes that a pass of so many records takes on a CPU: the process, the model with its buffers, and the graph."""
    kept: int = metadata["stored_bytes"] + records * metadata["activation_bytes"]
    return PROCESS_BYTES + kept


def training_memory(audit: Audit, architecture: str, mechanism: str, described: str, attempt: int) -> int:
    """Return the megabytes that a job asks for that trains shadow models; `described` is its architecture.json.

    Raises FileNotFoundError before that file is made: Snakemake asks again when the job is ready.
    """
    training = audit.training_of(architecture, mechanism)
    private = resolved_mechanism(audit, mechanism).kind.per_record
    return _megabytes(
        audit, described, attempt, lambda it: training_bytes(it, training, audit.compute.micro_batch, private)
    )


def pretraining_memory(audit: Audit, architecture: str, described: str, attempt: int) -> int:
    """Return the megabytes that a job asks for that trains the public start, as `training_memory` does."""
    training = audit.architectures[architecture].pretraining
    return _megabytes(
        audit, described, attempt, lambda it: training_bytes(it, training, audit.compute.micro_batch, private=False)
    )


def explaining_memory(audit: Audit, described: str, attempt: int) -> int:
    """Return the megabytes that a job asks for that explains records, as `training_memory` does."""
    return _megabytes(audit, described, attempt, lambda it: explaining_bytes(it, audit.compute.micro_batch))


def _megabytes(audit: Audit, described: str, attempt: int, on_cpu: Callable[[Mapping[str, Any]], int]) -> int:
    metadata = json.loads(Path(described).read_text(encoding="utf-8"))
    if "activation_bytes" not in metadata:  # somebody else's model
        return attempt * MODEL_MEGABYTES
    on_gpu = audit.compute.device.startswith("cuda")
    needed = GPU_PROCESS_BYTES + metadata["stored_bytes"] if on_gpu else on_cpu(metadata)
    return attempt * ceil(needed / 1e6)


def model_job(audit: Audit, memory: int | Callable[..., int] = MODEL_MEGABYTES) -> dict[str, Any]:
    """Return the resources of a job that trains or explains models.

    The device is a resource because a parameter of the rule that changes would run the job again.
    """
    device = audit.compute.device
    return {"mem_mb": memory, "gpu": int(device.startswith("cuda")), "device": device}
