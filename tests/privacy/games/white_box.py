"""The exact game: an observer who fixes the noise sees how far one record (person) moves a release, in units of that noise."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mia_audit.privacy.catalogue import Job, PerRecord, Protection
from mia_audit.privacy.gaussian import mu_for
from mia_audit.privacy.noise import training_key
from mia_audit.training.section import Training

from .canaries import Scene

DELTA = 1e-5
TRIALS, PAIRS = 60, 4
SLACK = 0.2
"""Relative error of a μ that is measured from `TRIALS` draws of the noise, of which `PAIRS` have a release with the canary."""
CONSTANT, UNCORRELATED = 1e-3, 0.15


@dataclass(frozen=True)
class Measured:
    """What the observer finds: μ of all steps as a share of the claim, and whether the noise alone differs between draws."""

    share: float
    constant: bool
    """Whether the difference of the releases with and without the canary is the same under every noise."""
    fresh: bool
    """Whether the noise of a step says nothing about that of the next."""
    keyed: bool
    """Whether every byte of the key changes the noise."""

    @property
    def refuted(self) -> bool:
        """Whether one of the claims does not hold."""
        return self.share > 1 + SLACK or not (self.constant and self.fresh and self.keyed)


def measure(
    protect: Callable[[Job], Protection],
    scene: Scene,
    epsilon: float,
    way: PerRecord = "vmap",
    steps: int = 1,
    by_person: bool = False,
    micro_batch: int = 64,
) -> Measured:
    """Take steps on the same weights with every record in the batch, with and without the canary, under the same keys."""
    count = len(scene.labels)
    persons = scene.persons if by_person else None
    units = count if persons is None else int(persons.max()) + 1
    training = Training(epochs=steps, batch=units, per_record=way)
    owner = torch.arange(count) if scene.persons is None else scene.persons

    def released(key: bytes, present: bool) -> Float[Tensor, "steps p"]:
        model = scene.model()
        protection = protect(Job(model, count, epsilon, training, micro_batch, key, scene.public, persons))
        gradients: list[Tensor] = []
        for _ in range(steps):
            for batch in protection.batches():
                kept = batch if present else batch[owner[batch] > 0]
                whose = () if persons is None else (persons[kept],)
                protection.backward(scene.inputs[kept], scene.labels[kept], *whose)
                gradients.append(torch.cat([v.grad.flatten() for v in model.parameters() if v.grad is not None]))
        return torch.stack(gradients).double()

    keys = [training_key((0, "white box", number), {}, b"") for number in range(TRIALS)]
    without = torch.stack([released(key, False) for key in keys])
    moved = torch.stack([released(key, True) for key in keys[:PAIRS]]) - without[:PAIRS]
    noise = without - without.mean(dim=0)
    deviation = noise.std(dim=0).clamp(min=1e-12)
    constant = bool((moved.std(dim=0) <= CONSTANT * deviation + 1e-9).all())
    mu = float((moved.mean(dim=0) / deviation).norm())
    standard = noise / deviation
    again = float((standard[:, 1:] * standard[:, :-1]).mean()) if noise.shape[1] > 1 else 0.0
    flips = [keys[0][:at] + bytes([keys[0][at] ^ 1]) + keys[0][at + 1 :] for at in range(len(keys[0]))]
    keyed = not any(torch.equal(released(key, False).double(), without[0]) for key in flips)
    return Measured(mu / mu_for(epsilon, DELTA), constant, abs(again) <= UNCORRELATED, keyed)
