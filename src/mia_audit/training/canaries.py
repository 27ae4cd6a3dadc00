"""A white-box audit of a mechanism: what its real training step proves to leak about one canary (Nasr et al. 2023).

The adversary knows everything but the noise and whether the canary was there: the model, the other records, and the
gradient of every step. The canary's gradient is as long as clipping lets it be, and orthogonal to the others'.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from mia_audit.config.schema import Training
from mia_audit.evaluation.epsilon import clopper_pearson_epsilon, gaussian_epsilon
from mia_audit.training.catalogue import Job, Protection

OTHERS = 7
LONG = 1000.0


@dataclass(frozen=True)
class Canary:
    """A record whose gradient lies in the weights (a long input) or in the bias (an input of zeros)."""

    name: str
    features: tuple[float, float]


CANARIES = {canary.name: canary for canary in (Canary("weight", (LONG, 0.0)), Canary("bias", (0.0, 0.0)))}


@dataclass(frozen=True)
class Game:
    """The terms of an audit: ε claimed, expected share of the records in a batch, steps seen, and trials with and without."""

    epsilon: float
    share: float = 1.0
    steps: int = 1
    trials: int = 2500
    pilot: int = 300
    alpha: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class Proof:
    """Lower bounds on ε at the mechanism's δ: for Gaussian mechanisms (no subsampling), and for any."""

    gaussian: float
    any_mechanism: float


def audit(protect: Callable[[Job], Protection], game: Game, canary: Canary) -> Proof:
    """Play the game on a linear model of two features and two classes, through the mechanism's own batches and steps.

    A first, separate set of trials fixes the direction in which the gradients with and without the canary differ, and
    the threshold; the rest count the errors of telling the two apart.
    """
    model = nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    inputs = torch.tensor([canary.features, *[(0.0, 1.0)] * OTHERS])
    labels = torch.zeros(1 + OTHERS, dtype=torch.long)
    batch = round(game.share * len(labels))
    training = Training(epochs=game.steps * batch // len(labels) or 1, batch=batch)
    key = (game.seed, "canaries", canary.name)
    protection = protect(Job(model, len(labels), game.epsilon, training, len(labels), key))

    def trials(count: int, present: bool) -> Float[Tensor, "count p"]:
        return torch.stack([_observe(protection, model, inputs, labels, game.steps, present) for _ in range(count)])

    with_it, without = trials(game.pilot, True), trials(game.pilot, False)
    direction = with_it.mean(dim=0) - without.mean(dim=0)
    threshold = float((with_it.mean(dim=0) + without.mean(dim=0)) @ direction / 2)
    true_positives, false_positives = (
        int(np.count_nonzero((trials(game.trials, present) @ direction).numpy() > threshold))
        for present in (True, False)
    )
    errors = (true_positives, false_positives, game.trials, game.trials, game.alpha, protection.terms.delta)
    return Proof(gaussian_epsilon(*errors), clopper_pearson_epsilon(*errors))


def _observe(
    protection: Protection, model: nn.Module, inputs: Tensor, labels: Tensor, steps: int, present: bool
) -> Float[Tensor, " p"]:
    """Take steps on the same weights and return the mean of their gradients; record 0 is left out where it is not present."""
    seen = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    taken = 0
    while taken < steps:
        for batch in protection.batches():
            kept = batch if present else batch[batch > 0]
            protection.backward(inputs[kept], labels[kept])
            seen += torch.cat(
                [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
            )
            taken += 1
            if taken == steps:
                break
    return seen / steps
