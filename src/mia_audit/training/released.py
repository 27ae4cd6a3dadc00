"""Train a model for release, without a seed and without keeping anything that was computed without noise."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from mia_audit.models import Subset
from mia_audit.privacy.catalogue import Job, Terms
from mia_audit.privacy.noise import RELEASED, Stream, fresh_key, seed_layers
from mia_audit.runtime.precision import computing
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.loop import optimizer_of, steps_of_epoch, training_of
from mia_audit.training.shadow import Recipe, check_batch, people_of, start
from mia_audit.training.state import State, capture_state, restore_state

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

    from mia_audit.models import Inputs

COUNTERS = ("draws", "noise", "records")
"""Names of a mechanism's stream counters in its state; these are not restored, because another process has other streams."""

EPOCHS = "epochs"
"""The key of the number of finished epochs in a saved state."""

SEED_BITS = 63


@dataclass(frozen=True)
class Released:
    """A trained model in eval mode, the terms of its training, and the number of its steps."""

    model: nn.Module
    terms: Terms
    steps: int


class KeptEpochs(Checkpoint):
    """The state after the last epoch of training for release: only weights, the optimizer's moments and public masks.

    These are functions of the noisy sums, so ε covers them all. The state is saved after every epoch, so a kill loses
    at most one epoch.
    """

    def __init__(self, folder: Path, key: str) -> None:
        super().__init__(folder, key, 0.0)
        self._state: State | None = None

    def resume(self) -> State:
        """Return the state after the last saved epoch, reading the file only once."""
        if self._state is None:
            self._state = super().resume()
        return self._state

    def offer(self, capture: Callable[[], State]) -> None:
        """Keep a state."""
        self._state = None
        super().offer(capture)

    @property
    def epochs(self) -> int | None:
        """The number of epochs after which the state was saved; None if there is no state, or it is damaged."""
        state = self.resume()
        return int(state[f"rest.{EPOCHS}"]) if state else None


def train_released(
    recipe: Recipe,
    inputs: Inputs | Tensor,
    labels: Int[Tensor, " n"],
    members: Bool[np.ndarray, " n"],
    checkpoint: Checkpoint | None = None,
    persons: Int[np.ndarray, " n"] | None = None,
) -> Released:
    """Train on the members of the pool [n, …], with batches, noise and random layers from a key that only this call knows.

    No loss is kept, and no value ends training early. If training was killed, the interrupted epoch is repeated with
    another key, and so with other batches and noise. The caller must account for its steps twice. Raises UserError if
    the batch exceeds the training set or the mechanism cannot be applied.
    """
    checkpoint = checkpoint or Checkpoint()
    model = start(recipe, secrets.randbits(SEED_BITS)).to(inputs.device)
    training_set = torch.from_numpy(np.flatnonzero(members)).to(inputs.device)
    people = people_of(recipe, members, persons)
    check_batch(recipe.training, len(training_set) if people is None else len(people), people is not None)
    key = fresh_key()
    job = Job(
        model,
        len(training_set),
        recipe.epsilon,
        recipe.training,
        recipe.micro_batch,
        key,
        recipe.public_records,
        None if people is None else torch.from_numpy(people.of),
        RELEASED,
    )
    protection = recipe.mechanism.kind(recipe.mechanism, job)
    training, optimizer = training_of(job), optimizer_of(job)
    records, truth = Subset(inputs, training_set), labels[training_set]
    done = 0

    def captured() -> State:
        kept = {name: value for name, value in protection.state().items() if name not in COUNTERS}
        rest = {f"protection.{name}": value for name, value in kept.items()}
        return capture_state(model, optimizer, rest | {EPOCHS: torch.tensor(done)})

    with computing(model, training.precision or "float32"), torch.random.fork_rng():
        model.train()
        layers = Stream(key, "layers")
        if state := checkpoint.resume():
            rest = restore_state(state, model, optimizer)
            done = int(rest.pop(EPOCHS))
            kept = {name.removeprefix("protection."): value for name, value in rest.items()}
            protection.restore(dict.fromkeys(COUNTERS, torch.tensor(0)) | kept)
        else:
            checkpoint.offer(captured)
        while done < training.epochs:
            seed_layers(layers.layer_seed())
            for _ in steps_of_epoch(job, protection, records, truth, optimizer, done * protection.steps_per_epoch):
                pass
            done += 1
            checkpoint.offer(captured)
        model.eval()
    return Released(model, protection.terms, training.epochs * protection.steps_per_epoch)
