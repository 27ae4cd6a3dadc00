"""What is trained, and what its randomness is keyed by."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import construct, describe
from mia_audit.models.weights import identity_of, read_weights, save_weights
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.training import shadow
from mia_audit.training.loop import fit
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, _terms, train_shadow
from mia_audit.training.trainable import choose_part


def trained(model: nn.Module) -> set[str]:
    return {name for name, value in model.named_parameters() if value.requires_grad}


def test_all_bias_and_head_of_every_model(model_and_shape: tuple[nn.Module, tuple[int, ...]]) -> None:
    model, _ = model_and_shape
    names = {name for name, _ in model.named_parameters()}
    choose_part(model, Training(trainable="all"))
    assert trained(model) == names
    choose_part(model, Training(trainable="bias"))
    assert trained(model) == {name for name in names if name.endswith("bias")} != set()
    model.requires_grad_(True)
    choose_part(model, Training(trainable="head"))
    heads = (
        {"head.weight", "head.bias"}
        if "head.weight" in names
        else {"6.weight", "6.bias"}
        if "6.bias" in names
        else {"5.weight", "5.bias"}
    )
    assert trained(model) == heads


@pytest.mark.parametrize("part", ["head", "bias"])
@pytest.mark.parametrize(("mechanism", "epsilon"), [("none", float("inf")), ("dp-sgd", 8.0)])
def test_frozen_parameters_keep_their_values(
    part: str, mechanism: str, epsilon: float, mlp: nn.Module, table: tuple[torch.Tensor, torch.Tensor]
) -> None:
    choose_part(mlp, Training(trainable=part))
    before = {name: value.detach().clone() for name, value in mlp.named_parameters()}
    job = Job(
        model=mlp,
        records=40,
        epsilon=epsilon,
        training=Training(epochs=2, batch=10, weight_decay=0.1),
        micro_batch=64,
        key=b"test",
    )
    fit(job, mechanisms[mechanism].protect(Mechanism(mechanism=mechanism), job), *table)
    moved = {name for name, value in mlp.named_parameters() if not torch.equal(value, before[name])}
    assert moved == trained(mlp)


@pytest.mark.parametrize("part", ["head", "bias"])
def test_a_model_without_such_a_part_is_refused(part: str) -> None:
    with pytest.raises(UserError, match=r"training\.train"):
        choose_part(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten()), Training(trainable=part))


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
    stated = _terms(recipe)["training"]
    assert "per_record" not in stated  # trainings before the key have none
    assert not torch.equal(weights(replace(recipe, training=book)), taken)
    slower = training.model_copy(update={"learning_rate": 0.01})
    assert not torch.equal(weights(replace(recipe, training=slower)), taken)


def test_a_seed_draws_the_same_on_every_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors round weights differently, those of a public model and random ones."""
    architecture = describe("mlp", "mlp", {"width": 4, "depth": 1}, (6,), 2)
    recipe = Recipe(architecture, None, Mechanism(mechanism="dp-sgd"), Training(epochs=1, batch=4), 4.0, 8, (0, "test"))
    keys: list[bytes] = []
    honest = shadow.training_key
    monkeypatch.setattr(shadow, "training_key", lambda *given: keys.append(honest(*given)) or honest(*given))

    def keys_of(trained: list[str]) -> int:
        keys.clear()
        for number, name in enumerate(trained):
            path = tmp_path / f"{number}.safetensors"
            save_weights(_moved(construct(architecture, 0), number * 1e-6), path, name)
            weights(replace(recipe, public=read_weights(path), start=identity_of(path)))
        return len(set(keys))

    assert keys_of(["so", "so"]) == 1
    assert keys_of(["so", "otherwise"]) == 2
    assert keys_of(["", ""]) == 2  # weights of unknown origin are what their bytes are
    for last_bits in (0.0, 1e-6):
        monkeypatch.setattr(shadow, "construct", lambda *given, moved=last_bits: _moved(construct(*given), moved))
        weights(recipe)
    assert keys[-1] == keys[-2]


def _moved(model: torch.nn.Module, share: float) -> torch.nn.Module:
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(1 + share)
    return model


def test_momentum_is_a_term_of_the_key_only_where_it_is_named() -> None:
    architecture = describe("mlp", "mlp", {"width": 4, "depth": 1}, (6,), 2)
    mechanism = Mechanism(mechanism="dp-sgd")
    recipe = Recipe(architecture, None, mechanism, Training(optimizer="sgd"), 4.0, 8, (0, "test"))
    assert "momentum" not in _terms(recipe)["training"]
    named = replace(recipe, training=Training(optimizer="sgd", momentum=0.5))
    assert _terms(named)["training"] == _terms(recipe)["training"] | {"momentum": 0.5}
