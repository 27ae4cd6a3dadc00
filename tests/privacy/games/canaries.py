"""A white-box audit of a mechanism: a lower bound on what its training step leaks about one canary (Nasr et al. 2023).

The adversary knows the model, the other records, and the gradient of every step: everything except the noise and the
canary's presence. The canary's gradient is as long as clipping permits, and orthogonal to those of the others. If a
mask scales the noise, the canary's features determine the mask.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.evaluation.epsilon_bounds import clopper_pearson_epsilon, gaussian_epsilon
from mia_audit.privacy.catalogue import Job, Protection
from mia_audit.privacy.noise import training_key
from mia_audit.training.section import Training

OTHERS = 7
LONG = 1000.0


@dataclass(frozen=True)
class Scene:
    """A model and its training set, [n, …] and [n]. Record 0 is the canary. Public records are included if a mechanism reads them."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Float[Tensor, "n ..."]
    labels: Int[Tensor, " n"]
    public: tuple[Tensor, Tensor] | None = None
    persons: Int[Tensor, " n"] | None = None
    """The person of every record, if the guarantee is for persons; the canary is then person 0, with all of their records."""


def linear(name: str, canary: tuple[float, float]) -> Scene:
    """A linear model of two features and two classes, all zero; the canary's gradient lies in the weights or in the bias."""

    def model() -> nn.Module:
        built = nn.Linear(2, 2)
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.zero_()
        return built

    inputs = torch.tensor([canary, *[(0.0, 1.0)] * OTHERS])
    return Scene(name, model, inputs, torch.zeros(1 + OTHERS, dtype=torch.long))


def person(records: int = 5) -> Scene:
    """The same linear model; its canary is a person with several equal records, and the others have one record each."""
    base = linear("person", (LONG, 0.0))
    inputs = torch.cat([base.inputs[:1].repeat(records, 1), base.inputs[1:]])
    persons = torch.cat([torch.zeros(records, dtype=torch.long), torch.arange(1, 1 + OTHERS)])
    return replace(base, inputs=inputs, labels=torch.zeros(len(inputs), dtype=torch.long), persons=persons)


CANARIES = {scene.name: scene for scene in (linear("weight", (LONG, 0.0)), linear("bias", (0.0, 0.0)))}


def channel_scene(depth: int = 64) -> Scene:
    """A 3 × 3 convolution from `depth` inputs to three channels, with a linear head: one record decides which channel is important.

    The logit of class 0 is ten times channel 0, that of class 1 the sum of the two other channels. All records except
    the canary are of class 1. If the canary is in the batch, channel 0 is the most important one on average. Otherwise
    the two other channels are, each with 9 · `depth` weights. The public records are those of class 1.
    """

    def model() -> nn.Module:
        built = nn.Sequential(nn.Conv2d(depth, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2))
        convolution, head = built[0], built[3]
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.zero_()
            convolution.bias.fill_(1.0)  # type: ignore[union-attr, operator]
            head.weight[0, 0] = 10.0  # type: ignore[index, operator]
            head.weight[1, 1:] = 1.0  # type: ignore[index, operator]
        return built

    inputs = torch.zeros(1 + OTHERS, depth, 3, 3)
    inputs[0, 0] = LONG
    labels = torch.ones(1 + OTHERS, dtype=torch.long)
    labels[0] = 0
    return Scene("channels", model, inputs, labels, (inputs[1:], labels[1:]))


@dataclass(frozen=True)
class Game:
    """The terms of an audit: claimed ε, expected share of the records in a batch, observed steps, and trials with and without the canary.

    The adversary observes `view` of the mean gradient, [p]: the gradient itself, or its square if the noise may be
    informative. `delta` is that of the claim, or the mechanism's own when left out. With `afresh` every trial sets up
    the mechanism anew, for mechanisms with a state.
    """

    epsilon: float
    share: float = 1.0
    steps: int = 1
    trials: int = 2500
    pilot: int = 300
    alpha: float = 0.01
    seed: int = 0
    view: Callable[[Tensor], Tensor] = torch.clone
    delta: float | None = None
    afresh: bool = False
    by_person: bool = False
    """Whether the claim is about persons: the mechanism then receives the person of every record."""


@dataclass(frozen=True)
class Proof:
    """Lower bounds on ε at the mechanism's δ: one for Gaussian mechanisms (no subsampling), and one for any mechanism."""

    gaussian: float
    any_mechanism: float


def audit(protect: Callable[[Job], Protection], game: Game, scene: Scene) -> Proof:
    """Play the game on a scene, through the mechanism's own batches and steps.

    A first, separate set of trials fixes the direction in which the gradients with and without the canary differ, and
    the threshold; the rest are used to count the errors of this threshold.
    """
    model, count = scene.model(), len(scene.labels)
    units = count if scene.persons is None or not game.by_person else int(scene.persons.max()) + 1
    batch = round(game.share * units)
    training = Training(epochs=game.steps * batch // units or 1, batch=batch, per_record="vmap")
    persons = scene.persons if game.by_person else None

    def protected(*trial: int) -> Protection:
        key = training_key((game.seed, "canaries", scene.name, *trial), {}, b"")
        return protect(Job(model, count, game.epsilon, training, count, key, scene.public, persons))

    protection = protected()
    numbers = itertools.count()

    def trials(count: int, present: bool) -> Float[Tensor, "count p"]:
        protections = (protected(next(numbers)) if game.afresh else protection for _ in range(count))
        return torch.stack([game.view(_observe(one, model, scene, game, present)) for one in protections])

    with_it, without = trials(game.pilot, True), trials(game.pilot, False)
    direction = with_it.mean(dim=0) - without.mean(dim=0)
    threshold = float((with_it.mean(dim=0) + without.mean(dim=0)) @ direction / 2)
    true_positives, false_positives = (
        int(np.count_nonzero((trials(game.trials, present) @ direction).numpy() > threshold))
        for present in (True, False)
    )
    delta = protection.terms.delta if game.delta is None else game.delta
    errors = (true_positives, false_positives, game.trials, game.trials, game.alpha, delta)
    return Proof(gaussian_epsilon(*errors), clopper_pearson_epsilon(*errors))


def _observe(protection: Protection, model: nn.Module, scene: Scene, game: Game, present: bool) -> Float[Tensor, " p"]:
    """Take steps on the same weights and return the mean of their gradients; without `present`, the canary is left out."""
    steps = game.steps
    canary = torch.arange(len(scene.labels)) if scene.persons is None else scene.persons
    seen = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    taken = 0
    while taken < steps:
        for batch in protection.batches():
            kept = batch if present else batch[canary[batch] > 0]
            persons = (scene.persons[kept],) if game.by_person and scene.persons is not None else ()
            protection.backward(scene.inputs[kept], scene.labels[kept], *persons)
            seen += torch.cat(
                [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
            )
            taken += 1
            if taken == steps:
                break
    return seen / steps
