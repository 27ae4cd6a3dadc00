"""One shadow model from start to finish: built or fine-tuned, trained under a mechanism, measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from mia_audit.compute.precision import computing
from mia_audit.config.schema import Mechanism, Training
from mia_audit.errors import UserError
from mia_audit.models import Inputs, Part, construct
from mia_audit.seeds import seed_for
from mia_audit.training.catalogue import Job, Terms, mechanisms
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.loop import Epoch, Progress, fit, judged, share
from mia_audit.training.masks import Masks
from mia_audit.training.parts import PARTS

SCHEMA = pa.schema(
    {
        "shadow": pa.int32(),
        "epoch": pa.int32(),
        "loss": pa.float32(),
        "train_accuracy": pa.float32(),
        "test_accuracy": pa.float32(),
        "train_loss": pa.float32(),
        "test_loss": pa.float32(),
        "records": pa.int32(),
        "steps": pa.int32(),
        "epsilon": pa.float64(),
        "epsilon_rdp": pa.float64(),
        "delta": pa.float64(),
        "noise_multiplier": pa.float64(),
        "sampling_rate": pa.float64(),
        "accountant": pa.string(),
        "sampling": pa.string(),
        "clipping": pa.string(),
        "noise_mask": pa.string(),
    }
)


@dataclass(frozen=True)
class Recipe:
    """What all shadow models of a setting share; `public` are the weights they start from, if any: each draws what is missing."""

    architecture: Mapping[str, Any]
    public: Mapping[str, Tensor] | None
    mechanism: Mechanism
    training: Training
    epsilon: float
    micro_batch: int
    key: tuple[int | str, ...]
    public_records: tuple[Inputs | Tensor, Tensor] | None = None
    """Inputs and labels of the pool's public records, where the mechanism reads them."""


@dataclass(frozen=True)
class Shadow:
    """A trained model and how it came about; ε is of the whole training, by the mechanism's accountant and by RDP."""

    model: nn.Module
    records: int
    epochs: list[Epoch]
    terms: Terms
    epsilon: float
    epsilon_rdp: float
    train_accuracy: float
    test_accuracy: float
    train_loss: float
    test_loss: float
    masks: Masks | None


def train_shadow(
    recipe: Recipe,
    shadow: int,
    inputs: Inputs | Tensor,
    labels: Int[Tensor, " n"],
    members: Bool[np.ndarray, " n"],
    progress: Progress = lambda *_: None,
    checkpoint: Checkpoint | None = None,
) -> Shadow:
    """Train shadow model number `shadow` on its members of the pool [n, …]; test accuracy is over the others.

    Training goes on from the checkpoint where it holds an epoch. Everything random is keyed by the recipe's key and the
    shadow's number. Raises UserError where the batch exceeds the training set, or the mechanism cannot be applied.
    """
    key = (*recipe.key, shadow)
    model = _start(recipe, key).to(inputs.device)
    inside = torch.from_numpy(np.flatnonzero(members)).to(inputs.device)
    check_batch(recipe.training, len(inside))
    job = Job(model, len(inside), recipe.epsilon, recipe.training, recipe.micro_batch, key, recipe.public_records)
    protection = mechanisms[recipe.mechanism.mechanism](recipe.mechanism, job)
    with computing(model, recipe.training.precision or "float32"):
        epochs = fit(job, protection, Part(inputs, inside), labels[inside], progress, checkpoint)
        hits, losses = (found.cpu().numpy() for found in judged(model, inputs, labels, recipe.micro_batch))
    own, rdp = protection.spent(epochs[-1].steps)
    return Shadow(
        model,
        len(inside),
        epochs,
        protection.terms,
        own,
        rdp,
        share(hits[members]),
        share(hits[~members]),
        share(losses[members]),
        share(losses[~members]),
        protection.masks(),
    )


def check_batch(training: Training, records: int) -> None:
    """Refuse a batch that is larger than the training set."""
    if training.batch > records:
        raise UserError(
            f"training.batch: {training.batch} records a step, but the training set has {records}: at most {records}"
        )


def training_table(shadow: int, trained: Shadow) -> pa.Table:
    """Tell a shadow model's training, a row an epoch; accuracies and ε are of the last."""
    count, terms = len(trained.epochs), trained.terms
    last: dict[str, Any] = {
        "train_accuracy": trained.train_accuracy,
        "test_accuracy": trained.test_accuracy,
        "train_loss": trained.train_loss,
        "test_loss": trained.test_loss,
        "epsilon": trained.epsilon,
        "epsilon_rdp": trained.epsilon_rdp,
    }
    same: dict[str, Any] = {
        "shadow": shadow,
        "records": trained.records,
        "delta": terms.delta,
        "noise_multiplier": terms.noise_multiplier,
        "sampling_rate": terms.sampling_rate,
        "accountant": terms.accountant,
        "sampling": terms.sampling,
        "clipping": terms.clipping,
        "noise_mask": terms.noise_mask,
    }
    columns: dict[str, list[Any]] = {
        "epoch": list(range(1, count + 1)),
        "loss": [epoch.loss for epoch in trained.epochs],
        "steps": [epoch.steps for epoch in trained.epochs],
        **{name: [None] * (count - 1) + [value] for name, value in last.items()},
        **{name: [value] * count for name, value in same.items()},
    }
    return pa.table(columns, schema=SCHEMA)


def _start(recipe: Recipe, key: tuple[int | str, ...]) -> nn.Module:
    model = construct(recipe.architecture, seed_for(*key, "initial weights"))
    if recipe.public is not None:
        model.load_state_dict(recipe.public, strict=False)  # checked when they were read
    PARTS[recipe.training.train](model)
    return model
