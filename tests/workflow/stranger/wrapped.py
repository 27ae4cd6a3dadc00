"""The built-in vision transformer in a stranger's hands: trained by a script, and killed once."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.learners.protocol import Compute
from mia_audit.learners.torch_module import TorchLearner, TorchModel
from mia_audit.models.architecture import describe
from mia_audit.pools.store import read_records
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.section import Training
from mia_audit.training.task import Records, TrainingTask

SHAPE, CLASSES = (1, 8, 8), 10
VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
ARCHITECTURE = describe("vit", "vision_transformer", VIT, SHAPE, CLASSES)
METADATA = {"kind": "image", "shape": list(SHAPE), "classes": [str(digit) for digit in range(CLASSES)]}
POOL = Path("results", "tiny", "pools", "digits")
PUBLIC = Path("results", "tiny", "digits", "vit", "public.safetensors")
"""What the built-in model starts from, where the audit trains it on public records first."""
KEY = (0, "train", "digits", "vit", "none", "inf")
"""What keys the trainings of the built-in model."""


def learner() -> TorchLearner:
    """Return the built-in learner, as an audit with a micro-batch of 32 has it."""
    return TorchLearner(ARCHITECTURE, Compute("cpu", 1, 32))


def fit(
    values: np.ndarray,
    labels: np.ndarray,
    members: np.ndarray,
    shadow: int,
    training: dict[str, Any],
    checkpoints: Path,
    killed: Path,
) -> TorchModel:
    """Train as the built-in loop does; in the first training of all, the second epoch ends in SIGKILL."""
    # the key of a training depends on how its records are prepared, which the pool's own metadata say
    records = Records(values, labels, read_records(POOL).metadata, np.arange(len(labels)))
    inside = np.zeros(len(labels), dtype=bool)
    inside[members] = True

    def progress(count: int, epoch: int) -> None:
        if epoch == 2 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    resumed = Checkpoint(checkpoints, "wrapped", 0.0)
    mechanism, known = Mechanism(mechanism="none"), Training(**training)
    start = PUBLIC if PUBLIC.exists() else None
    task = TrainingTask(
        records=records,
        members=inside,
        training=known,
        mechanism=mechanism,
        epsilon=float("inf"),
        key=KEY,
        shadow=shadow,
        start=start,
        checkpoint=resumed,
        progress=progress,
    )
    return learner().train(task)
