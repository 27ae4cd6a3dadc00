"""What the randomness of a training is keyed by."""

from dataclasses import replace

import numpy as np
import torch

from mia_audit.models import construct, describe
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, _terms, start, train_shadow


def weights(recipe: Recipe) -> torch.Tensor:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 6))
    inputs, labels = torch.from_numpy(pixels).float() / 255, torch.arange(12) % 2
    model = train_shadow(recipe, 0, inputs, labels, np.arange(12) < 8).model
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_noise_depends_on_what_defines_a_training_alone() -> None:
    """Not on how much memory a model takes, which another release of PyTorch changes, nor on when an audit stops."""
    architecture = describe("mlp", "mlp", {"width": 4, "depth": 1}, (6,), 2)
    training = Training(epochs=1, batch=4)
    recipe = Recipe(architecture, None, Mechanism(mechanism="dp-sgd"), training, 4.0, 8, (0, "test"))
    taken = weights(recipe)
    heavier = architecture | {"activation_bytes": 10**6, "stored_bytes": 10**6}
    assert torch.equal(weights(replace(recipe, architecture=heavier)), taken)
    assert torch.equal(weights(replace(recipe, training=training.model_copy(update={"floor": 0.3}))), taken)
    book = training.model_copy(update={"per_record": "book-keeping"})
    stated = _terms(recipe, construct(architecture, 0))["training"]
    assert "per_record" not in stated  # trainings before the key have none
    assert not torch.equal(weights(replace(recipe, training=book)), taken)
    slower = training.model_copy(update={"learning_rate": 0.01})
    assert not torch.equal(weights(replace(recipe, training=slower)), taken)


def test_momentum_is_a_term_of_the_key_only_where_it_is_named() -> None:
    architecture = describe("mlp", "mlp", {"width": 4, "depth": 1}, (6,), 2)
    mechanism = Mechanism(mechanism="dp-sgd")
    recipe = Recipe(architecture, None, mechanism, Training(optimizer="sgd"), 4.0, 8, (0, "test"))
    model = start(recipe, 0)
    assert "momentum" not in _terms(recipe, model)["training"]
    named = replace(recipe, training=Training(optimizer="sgd", momentum=0.5))
    assert _terms(named, model)["training"] == _terms(recipe, model)["training"] | {"momentum": 0.5}
