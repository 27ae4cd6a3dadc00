"""The training loop that all mechanisms share, and its state between two epochs."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mia_audit.errors import Diverged
from mia_audit.privacy.catalogue import Job, Protection
from mia_audit.privacy.noise import Stream, seed_layers
from mia_audit.runtime.device import AdaptiveBatchSize
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.report import Epoch
from mia_audit.training.section import Training
from mia_audit.training.task import Progress
from mia_audit.training.trainable import Batches

State = dict[str, Tensor]
"""Everything that the rest of training depends on, by name."""


def capture_state(model: nn.Module, optimizer: torch.optim.Optimizer, rest: Mapping[str, Tensor]) -> State:
    """Return weights and buffers, the optimizer's moments, and the rest.

    Generators of random layers are left out, because they are seeded anew in every epoch.
    """
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{index}.{name}": value for name, value in moments.items() if value is not None}
    return state | {f"rest.{name}": value for name, value in rest.items()}


def restore_state(state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Restore model and optimizer from a state; return the rest of the state."""
    model.load_state_dict(under(state, "model"))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in under(state, "optimizer").items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    return under(state, "rest")


def under(state: State, prefix: str) -> State:
    """Return the tensors below a prefix, by the rest of their names."""
    return {name.removeprefix(f"{prefix}."): value for name, value in state.items() if name.startswith(f"{prefix}.")}


MOMENTUM = 0.9
"""Momentum of sgd, if the config does not set it."""

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], Training], torch.optim.Optimizer]] = {
    "adamw": lambda parameters, training: torch.optim.AdamW(parameters, **_options(training)),
    "adam": lambda parameters, training: torch.optim.Adam(parameters, **_options(training)),
    "sgd": lambda parameters, training: torch.optim.SGD(
        parameters, momentum=MOMENTUM if training.momentum is None else training.momentum, **_options(training)
    ),
}


def _stepped(training: Training, epochs: float) -> float:
    return (training.decay or 1) ** (epochs // (training.decay_epochs or 1))


SCHEDULES: dict[str, Callable[[Training, float], float]] = {
    "constant": lambda training, epochs: 1.0,
    "cosine": lambda training, epochs: (1 + math.cos(math.pi * epochs / training.epochs)) / 2,
    "step": _stepped,
    "step-reset": _stepped,
}
"""Functions from a training section and a number of epochs, which may be fractional, to the factor of the learning rate."""


def fit(
    job: Job,
    protection: Protection,
    inputs: Batches,
    labels: Int[Tensor, " n"],
    progress: Progress = lambda *_: None,
    checkpoint: Checkpoint | None = None,
) -> list[Epoch]:
    """Train the job's model in place on the training set [n, …]; random layers are seeded in every epoch by the job's key.

    The state is offered to the checkpoint at the end of every epoch, and training resumes from the saved state. Raises
    Diverged if a weight is not finite after an epoch or, without noise, if the epoch's mean loss is not. Under a
    private mechanism the losses decide nothing, because they have no noise.
    """
    checkpoint = checkpoint or Checkpoint()
    training = training_of(job)
    optimizer = optimizer_of(job)
    epochs: list[Epoch] = []
    job.model.train()
    with torch.random.fork_rng():
        layers = Stream(job.key, "layers")
        if state := checkpoint.resume():
            epochs = _resume(restore_state(state, job.model, optimizer), protection)
        steps = epochs[-1].steps if epochs else 0
        for number in range(len(epochs) + 1, training.epochs + 1):
            layers.counter = number
            seed_layers(layers.layer_seed())
            losses, seen = torch.zeros((), dtype=torch.float64, device=inputs.device), 0
            for loss, size in steps_of_epoch(job, protection, inputs, labels=labels, optimizer=optimizer, steps=steps):
                losses += loss
                steps += 1
                seen += size
                progress(size, number)
            epochs.append(Epoch(losses.item() / seen if seen else math.nan, steps))
            if not protection.terms.noise_multiplier and seen and not math.isfinite(epochs[-1].loss):
                raise Diverged(number, f"its mean loss is {epochs[-1].loss}")
            if not all(bool(parameter.isfinite().all()) for parameter in job.model.parameters()):
                raise Diverged(number, "its last step gave weights that are not finite")
            if number < training.epochs:
                checkpoint.offer(lambda: capture_state(job.model, optimizer, _progress_state(epochs, protection)))
    job.model.eval()
    return epochs


def training_of(job: Job) -> Training:
    """Return the full training section of a job; the declared type `Steps` has only the keys that mechanisms read."""
    assert isinstance(job.training, Training)
    return job.training


def optimizer_of(job: Job) -> torch.optim.Optimizer:
    """Return the optimizer of a job's trainable parameters."""
    training = training_of(job)
    return OPTIMIZERS[training.optimizer]([p for p in job.model.parameters() if p.requires_grad], training)


def steps_of_epoch(
    job: Job,
    protection: Protection,
    inputs: Batches,
    labels: Int[Tensor, " n"],
    optimizer: torch.optim.Optimizer,
    steps: int,
) -> Iterator[tuple[Tensor, int]]:
    """Take the steps of one epoch, and yield each step's loss and number of records. `steps` is the number of earlier steps."""
    training = training_of(job)
    schedule = SCHEDULES[training.schedule]
    if training.schedule == "step-reset" and steps % (protection.steps_per_epoch * (training.decay_epochs or 1)) == 0:
        optimizer.state.clear()
    for number, batch in enumerate(protection.batches(), start=steps):
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * schedule(training, number / protection.steps_per_epoch)
        rows = batch.to(inputs.device)
        persons = () if job.persons is None else (job.persons[batch],)
        loss = protection.backward(inputs[rows], labels[rows], *persons)
        optimizer.step()
        yield loss, len(batch)


def _progress_state(epochs: list[Epoch], protection: Protection) -> dict[str, Tensor]:
    history = {"loss": [epoch.loss for epoch in epochs], "steps": [epoch.steps for epoch in epochs]}
    state = {f"epochs.{name}": torch.tensor(values, dtype=torch.float64) for name, values in history.items()}
    return state | {f"protection.{name}": value for name, value in protection.state().items()}


def _resume(state: dict[str, Tensor], protection: Protection) -> list[Epoch]:
    """Restore the state captured by `_progress_state`: set the mechanism's state and return the epochs."""
    protection.restore(under(state, "protection"))
    history = zip(state["epochs.loss"].tolist(), state["epochs.steps"].tolist(), strict=True)
    return [Epoch(loss, int(steps)) for loss, steps in history]


@torch.no_grad()
def hits_and_losses(
    model: nn.Module, inputs: Batches, labels: Int[Tensor, " n"], micro_batch: int
) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"]]:
    """Return a mask of the records that the model, in eval mode, classifies correctly, and every record's cross-entropy."""

    def logits_of(size: int) -> Tensor:
        return torch.cat([model(inputs[start : start + size]) for start in range(0, len(labels), size)])

    logits = AdaptiveBatchSize(micro_batch)(logits_of)
    return logits.argmax(dim=1) == labels, F.cross_entropy(logits, labels, reduction="none")


def _options(training: Training) -> dict[str, Any]:
    return {"lr": training.learning_rate, "weight_decay": training.weight_decay, "fused": True}
