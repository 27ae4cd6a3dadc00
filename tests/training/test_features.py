"""A classifier that is trained alone, on features that models share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import construct, describe
from mia_audit.privacy.catalogue import Job, Mechanism
from mia_audit.privacy.mechanisms import check_private
from mia_audit.privacy.noise import content_digest, training_key
from mia_audit.seeds import seed_for
from mia_audit.training import trainable
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, _terms, key_of, start, train_released, train_shadow
from mia_audit.training.trainable import Features, choose_part

VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
TRAINING = Training(
    epochs=3, batch=8, optimizer="sgd", learning_rate=0.1, momentum=0.0, schedule="constant", trainable="head"
)
RECORDS = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 3
MEMBERS = np.arange(40) < 24


@pytest.fixture(scope="module")
def architecture() -> dict[str, Any]:
    return describe("vit", "vision_transformer", VIT, (1, 8, 8), 3)


def recipe_for(architecture: dict[str, Any], mechanism: str = "none", **changes: Any) -> Recipe:
    public = construct(architecture, seed=5).state_dict()
    public = {name: value for name, value in public.items() if not name.startswith("head.")}
    section, epsilon = Mechanism(mechanism=mechanism), float("inf") if mechanism == "none" else 8.0
    return Recipe(architecture, public, section, TRAINING, epsilon, 16, (0, "test"), **changes)


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_a_shared_pass_gives_each_model_the_bytes_of_its_own(
    architecture: dict[str, Any], mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = recipe_for(architecture, mechanism)
    computed, sizes = trainable._features, []

    def counted(*given: Any) -> torch.Tensor:
        sizes.append(given[3])
        return computed(*given)

    monkeypatch.setattr(trainable, "_features", counted)
    together = [train_shadow(shared, shadow, RECORDS, LABELS, MEMBERS) for shadow in range(3)]
    assert sizes == [16]  # records at once
    for shadow, trained in enumerate(together):
        alone = train_shadow(recipe_for(architecture, mechanism), shadow, RECORDS, LABELS, MEMBERS)
        assert torch.equal(flat(alone.model), flat(trained.model))
        assert alone.epochs == trained.epochs
        assert alone.test_accuracy == trained.test_accuracy


def steps_of_whole_model(recipe: Recipe, shadow: int) -> Iterator[nn.Module]:
    """Train the whole model, one step at a time, with the same batches and noise."""
    key = key_of(recipe, shadow)
    model = start(recipe, seed_for(*key, "initial weights"))
    rows = torch.from_numpy(np.flatnonzero(MEMBERS))
    noise = training_key(key, _terms(recipe), content_digest(RECORDS, LABELS, rows))
    protection = recipe.mechanism.kind.protect(
        recipe.mechanism,
        Job(model=model, records=24, epsilon=recipe.epsilon, training=recipe.training, micro_batch=16, key=noise),
    )
    head = [value for value in model.parameters() if value.requires_grad]
    for _ in range(recipe.training.epochs):
        for batch in protection.batches():
            protection.backward(RECORDS[rows[batch]], LABELS[rows[batch]])
            with torch.no_grad():
                for value in head:
                    value -= recipe.training.learning_rate * value.grad
        yield model


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_the_classifier_is_that_of_a_training_of_the_whole_model(architecture: dict[str, Any], mechanism: str) -> None:
    """Up to the rounding of passes over other batches."""
    recipe = recipe_for(architecture, mechanism)
    trained = train_shadow(recipe, 1, RECORDS, LABELS, MEMBERS)
    *_, whole = steps_of_whole_model(recipe, 1)
    assert (flat(trained.model) - flat(whole)).abs().max() < 1e-6
    assert (
        flat(trained.model) - flat(start(recipe, seed_for(*key_of(recipe, 1), "initial weights")))
    ).abs().max() > 1e-3
    logits = trained.model(RECORDS).detach()
    assert trained.train_loss == pytest.approx(F.cross_entropy(logits[:24], LABELS[:24]).item(), rel=1e-5)


def test_frozen_layers_have_neither_dropout_nor_new_statistics() -> None:
    layers: list[nn.Module] = [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2)]
    model = nn.Sequential(*layers)
    choose_part(model, Training(trainable="head"))
    before = flat(model[:3])
    inputs = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    trained, features = Features()(model, TRAINING, inputs, 8)
    assert torch.equal(flat(model[:3]), before)
    normal = layers[1]
    assert torch.allclose(features, (layers[0](inputs) / (1 + normal.eps) ** 0.5).detach(), atol=1e-6)
    assert [tuple(value.shape) for value in trained.parameters()] == [(2, 6), (2,)]
    check_private(
        Job(model=trained, records=20, epsilon=8.0, training=TRAINING, micro_batch=8, key=b"test"), "dp-sgd", None
    )  # although the model mixes records in training


def test_a_classifier_that_is_a_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 8), nn.Conv2d(4, 3, 1), nn.Flatten())
    model.get_classifier = lambda: model[1]  # type: ignore[assignment]
    choose_part(model, Training(trainable="head"))
    trained, features = Features()(model, TRAINING, RECORDS, 16)
    assert torch.equal(trained(features), model(RECORDS))


def test_a_last_linear_layer_that_is_not_the_last_operation_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Softmax(dim=1))
    choose_part(model, Training(trainable="head"))
    with pytest.raises(UserError, match="not that of its last linear layer"):
        Features()(model, TRAINING, RECORDS, 16)


def test_a_released_classifier_alone_moves(architecture: dict[str, Any]) -> None:
    released = train_released(recipe_for(architecture, "dp-sgd"), RECORDS, LABELS, MEMBERS)
    assert released.terms.noise_multiplier > 0
    first = construct(architecture, seed=5).state_dict()
    moved = {name for name, value in released.model.state_dict().items() if not torch.equal(value, first[name])}
    assert moved == {"head.weight", "head.bias"}
