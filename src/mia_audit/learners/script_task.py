"""The task that a user's script receives to train one model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.runtime.gpus import VISIBLE, installed_gpus, visible_gpus

if TYPE_CHECKING:
    from jaxtyping import Int, Num, Shaped

    from mia_audit.learners.protocol import Compute
    from mia_audit.training.section import Training
    from mia_audit.training.task import Progress, TrainingTask


@dataclass(frozen=True)
class Task:
    """The task of training one model, in the form that a script receives.

    `members` are row numbers of the records. Records have the pool's form: rows of float32, or images of uint8 [n, C,
    H, W]. They may be memory-mapped.
    """

    records: Num[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"]
    members: Int[np.ndarray, " m"]
    persons: Shaped[np.ndarray, " n"] | None
    """The ids of the records' persons; None if the pool has none."""
    public_records: Num[np.ndarray, "p ..."] | None
    """The pool's public records, which no guarantee covers; None if the pool has none."""
    public_labels: Int[np.ndarray, " p"] | None
    classes: Sequence[str]
    epsilon: float
    """The required ε of the model's guarantee; infinite without privacy."""
    delta: float | None
    """The δ of the guarantee; None without privacy."""
    seed: int | None
    """A seed of 63 bits, different for every model.

    It is None for a released model (docs/release.md), whose randomness must be fresh. The global generators of random,
    numpy and torch are seeded with it or, if None, by the operating system's entropy.
    """
    shadow: int
    """The number of the model."""
    key: tuple[int | str, ...] | None
    """The key from which the seed is derived, together with the model's number; None without a seed."""
    parameters: Mapping[str, Any]
    """The architecture's `parameters` in the config."""
    training: Training
    """The config's `training` for this architecture and mechanism."""
    device: str
    """`cpu` or `cuda`; at most one GPU is visible."""
    threads: int
    checkpoints: Path
    """A folder for checkpoints from which a killed training run resumes. It is kept until the model is finished, and empty for a new model."""
    progress: Progress
    """A function to call in every step with the step's number of records and the epoch's number, from 1."""


def script_task(task: TrainingTask, architecture: Mapping[str, Any], compute: Compute, checkpoints: Path) -> Task:
    """Return a task in the form that a script receives."""
    public = task.public if task.public is not None and len(task.public) else None
    return Task(
        records=task.records.values,
        labels=task.records.labels,
        members=np.flatnonzero(task.members),
        persons=task.records.persons,
        public_records=None if public is None else public.values,
        public_labels=None if public is None else public.labels,
        classes=task.records.metadata["classes"],
        epsilon=task.epsilon,
        delta=task.mechanism.delta if math.isfinite(task.epsilon) else None,
        seed=task.seed,
        shadow=task.shadow,
        key=task.key,
        parameters=dict(architecture["arguments"]),
        training=task.training,
        device=device_name(compute.device),
        threads=compute.threads,
        checkpoints=checkpoints,
        progress=task.progress,
    )


def device_name(wanted: str) -> str:
    """Return `cuda` if a GPU is visible and requested, otherwise `cpu`, without importing torch."""
    import os

    if wanted == "cpu":
        return "cpu"
    visible = visible_gpus(os.environ[VISIBLE]) if VISIBLE in os.environ else installed_gpus()
    return "cuda" if visible and installed_gpus() else "cpu"


def own_checkpoints(task: TrainingTask, elsewhere: Path) -> Path:
    """Create and return a folder for a learner's own checkpoints, which only a training run with the same key uses again."""
    kept = task.checkpoint.folder
    folder = kept / f"own-{task.checkpoint.key[:16]}" if kept else elsewhere / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
