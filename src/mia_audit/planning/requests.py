"""What a job asks Snakemake for: memory and GPUs. The rules, `mia-audit plan` and `mia-audit doctor` share it."""

from math import ceil

from mia_audit.config.schema import Audit

PROCESS_MEGABYTES, BYTES_PER_CELL = 400, 115
"""Memory of an attack: of the process, and per record × model (benchmarks/stage_memory.py)."""

UNKNOWN_MEGABYTES = 4000
"""Memory of an attack where the config does not say how many records there are: enough for 30 million records × models."""

MODEL_MEGABYTES = 2000
"""Memory of a job that trains or explains models."""

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


def model_job(audit: Audit) -> dict[str, int | str]:
    """Return the resources of a job that trains or explains models.

    The device is a resource because a parameter of the rule that changes would run the job again.
    """
    device = audit.compute.device
    return {"mem_mb": MODEL_MEGABYTES, "gpu": int(device.startswith("cuda")), "device": device}
