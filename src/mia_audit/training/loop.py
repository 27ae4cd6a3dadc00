"""The training loop that all mechanisms share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mia_audit.compute.memory import Halving
from mia_audit.config.schema import Training
from mia_audit.errors import Diverged
from mia_audit.models import Inputs, Part
from mia_audit.seeds import seed_for
from mia_audit.training.catalogue import Job, Protection
from mia_audit.training.checkpoints import Checkpoint, captured, restore

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], Training], torch.optim.Optimizer]] = {
    "adamw": lambda parameters, training: torch.optim.AdamW(parameters, **_options(training)),
    "adam": lambda parameters, training: torch.optim.Adam(parameters, **_options(training)),
    "sgd": lambda parameters, training: torch.optim.SGD(parameters, momentum=0.9, **_options(training)),
}

SCHEDULES: dict[str, Callable[[Training, float], float]] = {
    "constant": lambda training, done: 1.0,
    "cosine": lambda training, done: (1 + math.cos(math.pi * done / training.epochs)) / 2,
    "step": lambda training, done: (training.decay or 1) ** (done // (training.decay_epochs or 1)),
}
"""Factors of the learning rate, after so many epochs (and parts of one) of a training section."""


@dataclass(frozen=True)
class Epoch:
    """The mean loss of the records of one epoch (as they were when drawn; NaN where none was), and the steps taken so far."""

    loss: float
    steps: int


Records = Inputs | Part | Tensor
"""Records that a batch is taken out of by a slice or a tensor of rows."""

Progress = Callable[[int, int], None]
"""Told after every step how many records it held, and which epoch it belongs to (from 1)."""


def fit(
    job: Job,
    protection: Protection,
    inputs: Records,
    labels: Int[Tensor, " n"],
    progress: Progress = lambda *_: None,
    checkpoint: Checkpoint | None = None,
) -> list[Epoch]:
    """Train the job's model in place on the training set [n, …]; what its layers draw is keyed by the job's key.

    A checkpoint is offered every epoch's end, and training goes on from the one that it holds. Raises Diverged where a loss
    or a weight is not finite.
    """
    checkpoint = checkpoint or Checkpoint()
    training = job.training
    optimizer = OPTIMIZERS[training.optimizer]([p for p in job.model.parameters() if p.requires_grad], training)
    schedule = SCHEDULES[training.schedule]
    epochs: list[Epoch] = []
    job.model.train()
    with torch.random.fork_rng():
        torch.manual_seed(seed_for(*job.key, "layers"))
        if state := checkpoint.resume():
            epochs = _go_on(restore(state, job.model, optimizer), protection)
        steps = epochs[-1].steps if epochs else 0
        for number in range(len(epochs) + 1, training.epochs + 1):
            losses, seen = torch.zeros((), device=inputs.device), 0
            for batch in protection.batches():
                for group in optimizer.param_groups:
                    group["lr"] = training.learning_rate * schedule(training, steps / protection.steps_per_epoch)
                chosen = batch.to(inputs.device)
                losses += protection.backward(inputs[chosen], labels[chosen])
                optimizer.step()
                steps += 1
                seen += len(batch)
                progress(len(batch), number)
            epochs.append(Epoch(losses.item() / seen if seen else math.nan, steps))
            if seen and not math.isfinite(epochs[-1].loss):
                raise Diverged(number, f"its mean loss is {epochs[-1].loss}")
            if number < training.epochs:
                checkpoint.offer(lambda: captured(job.model, optimizer, _so_far(epochs, protection)))
    if not all(bool(parameter.isfinite().all()) for parameter in job.model.parameters()):
        raise Diverged(training.epochs, "its last step left weights that are not finite")
    job.model.eval()
    return epochs


def _so_far(epochs: list[Epoch], protection: Protection) -> dict[str, Tensor]:
    history = {"loss": [epoch.loss for epoch in epochs], "steps": [epoch.steps for epoch in epochs]}
    told = {f"epochs.{name}": torch.tensor(values, dtype=torch.float64) for name, values in history.items()}
    return told | {f"protection.{name}": value for name, value in protection.state().items()}


def _go_on(rest: dict[str, Tensor], protection: Protection) -> list[Epoch]:
    """Undo `_so_far`: put the mechanism's state back, and return the epochs."""
    own = "protection."
    protection.restore({name.removeprefix(own): value for name, value in rest.items() if name.startswith(own)})
    history = zip(rest["epochs.loss"].tolist(), rest["epochs.steps"].tolist(), strict=True)
    return [Epoch(loss, int(steps)) for loss, steps in history]


@torch.no_grad()
def judged(
    model: nn.Module, inputs: Records, labels: Int[Tensor, " n"], micro_batch: int
) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"]]:
    """Tell which records the model, in eval mode, classifies rightly, and the cross-entropy of each."""

    def logits_of(size: int) -> Tensor:
        return torch.cat([model(inputs[start : start + size]) for start in range(0, len(labels), size)])

    logits = Halving(micro_batch)(logits_of)
    return logits.argmax(dim=1) == labels, F.cross_entropy(logits, labels, reduction="none")


def share(hits: Bool[np.ndarray, " n"] | Float[np.ndarray, " n"]) -> float:
    """Return the share of hits, or the mean of losses; NaN where there is nothing to count."""
    return float(hits.mean()) if hits.size else math.nan


def _options(training: Training) -> dict[str, Any]:
    return {"lr": training.learning_rate, "weight_decay": training.weight_decay, "fused": True}
