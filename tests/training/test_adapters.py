"""Adapters of low rank: what is trained, what is stored, and what is refused."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mia_audit.config.load import check_audit
from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute
from mia_audit.learners.torch_module import TorchLearner
from mia_audit.models.architecture import construct, describe
from mia_audit.models.weights import WEIGHTS, read_weights, write_weights
from mia_audit.privacy.catalogue import Mechanism, PerRecord
from mia_audit.privacy.noise import automatic
from mia_audit.privacy.per_record import ClippedSum
from mia_audit.training.section import Lora, Training, TrainingOverrides
from mia_audit.training.task import Records, TrainingTask
from mia_audit.training.trainable import Adapter, Movement, check_part, choose_part, merge_adapters

SHAPE, COUNT = (1, 8, 8), 24
VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2}
LORA = Lora(rank=2, alpha=3.0, targets=("qkv", "mlp.fc2"))
TRAINING = Training(epochs=3, batch=8, learning_rate=0.05, trainable="lora", lora=LORA)


@pytest.fixture(scope="module")
def architecture() -> dict[str, Any]:
    return describe("vit", "vision_transformer", VIT, SHAPE, 3)


@pytest.fixture
def adapted(architecture: dict[str, Any]) -> nn.Module:
    """A model with adapters that were moved from 0."""
    model = construct(architecture, seed=1)
    choose_part(model, TRAINING, seed=2)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith(".up"):
                value.normal_(generator=torch.Generator().manual_seed(len(name)))
    return model.eval()


def records() -> Records:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (COUNT, *SHAPE), dtype=np.uint8)
    metadata = {"kind": "image", "classes": ["a", "b", "c"]}
    return Records(pixels, random.integers(0, 3, COUNT), metadata, np.arange(COUNT))


def task(start: Path, mechanism: str = "none", **changes: Any) -> TrainingTask:
    epsilon = math.inf if mechanism == "none" else 8.0
    training = TRAINING.model_copy(update=changes)
    return TrainingTask(
        records=records(),
        members=np.arange(COUNT) % 2 == 0,
        training=training,
        mechanism=Mechanism(mechanism=mechanism),
        epsilon=epsilon,
        key=(0, "test"),
        shadow=0,
        start=start,
    )


@pytest.fixture
def start(architecture: dict[str, Any], tmp_path: Path) -> Path:
    """Published weights without a classifier, where an audit writes them."""
    weights = construct(architecture, seed=7).state_dict()
    path = tmp_path / "digits" / "vit" / "start.safetensors"
    write_weights({name: value for name, value in weights.items() if not name.startswith("head.")}, path)
    return path


def test_an_adapter_starts_at_its_layer_and_adds_a_product_of_low_rank() -> None:
    layer, inputs = nn.Linear(5, 3), torch.randn(4, 5)
    adapter = Adapter(layer, Lora(rank=2, alpha=6.0), torch.Generator().manual_seed(0))
    assert torch.equal(adapter(inputs), layer(inputs))
    assert 0 < adapter.down.abs().max() <= 5**-0.5
    nn.init.normal_(adapter.up)
    weight = layer.weight.double() + 3 * adapter.up.double() @ adapter.down.double()
    expected = inputs.double() @ weight.T + layer.bias.double()
    torch.testing.assert_close(adapter(inputs).double(), expected, atol=1e-5, rtol=1e-5)


def test_merged_adapters_give_a_plain_model_with_the_same_outputs(
    adapted: nn.Module, architecture: dict[str, Any]
) -> None:
    inputs = torch.randn(6, *SHAPE, generator=torch.Generator().manual_seed(3))
    before = adapted(inputs).detach()
    factors = merge_adapters(adapted)
    torch.testing.assert_close(adapted(inputs), before, atol=1e-5, rtol=1e-5)
    assert adapted.state_dict().keys() == construct(architecture, seed=0).state_dict().keys()
    layers = [f"blocks.{block}.{layer}.weight" for block in range(2) for layer in ("attn.qkv", "mlp.fc2")]
    assert set(factors) == {f"{layer}.lora_{side}" for layer in layers for side in ("up", "down")}


@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_clipped_sums_are_those_of_one_record_at_a_time(adapted: nn.Module, way: PerRecord) -> None:
    exact = copy.deepcopy(adapted).double()
    inputs = torch.randn(9, *SHAPE, generator=torch.Generator().manual_seed(4))
    labels = torch.arange(9) % 3
    trained = {name: value for name, value in exact.named_parameters() if value.requires_grad}
    assert {name.rpartition(".")[2] for name in trained} == {"up", "down", "weight", "bias"}
    assert all(name.startswith("head.") for name in trained if name.endswith(("weight", "bias")))
    expected = torch.zeros(sum(value.numel() for value in trained.values()), dtype=torch.float64)
    for record, label in zip(inputs, labels, strict=True):
        loss = F.cross_entropy(exact(record[None].double()), label[None])
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(trained.values()))])
        expected += gradient / (gradient.norm() + 0.01)
    total, _ = ClippedSum(adapted, automatic(1.0), 16, way)(inputs, labels)
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_adapters_and_the_classifier_move_and_nothing_else(
    architecture: dict[str, Any], start: Path, mechanism: str
) -> None:
    model = TorchLearner(architecture, Compute(micro_batch=8)).train(task(start, mechanism))
    first, after = read_weights(start), model.module.state_dict()
    moved = {name for name, value in after.items() if name not in first or not torch.equal(value, first[name])}
    layers = {f"blocks.{block}.{layer}.weight" for block in range(2) for layer in ("attn.qkv", "mlp.fc2")}
    assert moved == layers | {"head.weight", "head.bias"}
    for name in layers:
        assert torch.linalg.matrix_rank(after[name] - first[name], rtol=1e-4) == 2


@pytest.mark.parametrize("part", ["lora", "head", "bias"])
def test_a_model_stores_its_own_weights_alone(architecture: dict[str, Any], start: Path, part: str) -> None:
    changes = {"trainable": part, "lora": LORA if part == "lora" else None}
    learner = TorchLearner(architecture, Compute(micro_batch=8))
    model = learner.train(task(start, **changes))
    folder = start.parent / "none-epsinf" / "models" / "shadow-0"
    folder.mkdir(parents=True)
    model.save(folder)
    opened = TorchLearner(architecture, Compute(micro_batch=8)).load(folder)
    np.testing.assert_array_equal(opened.logits(records()), model.logits(records()))
    stored, whole = ((path.stat().st_size) for path in (folder / WEIGHTS, start))
    assert stored < 0.5 * whole
    other = {name: value + 1 for name, value in read_weights(start).items()}
    write_weights(other, start)
    with pytest.raises(UserError, match=r"start\.safetensors: these are not the weights"):
        read_weights(folder / WEIGHTS)
    start.unlink()
    with pytest.raises(UserError, match=r"start\.safetensors: these are not the weights .* in a folder above"):
        read_weights(folder / WEIGHTS)


def test_training_that_moves_too_much_or_too_little_is_noticed(adapted: nn.Module) -> None:
    movement = Movement(adapted)
    with pytest.raises(UserError, match=r"the training left 'blocks.0.attn.qkv.down' at its initial values"):
        movement.check()
    with torch.no_grad():
        for value in adapted.parameters():
            value += value.requires_grad
        movement.check()
        next(adapted.parameters()).add_(1)
    with pytest.raises(RuntimeError, match="frozen"):
        movement.check()


def test_layers_that_are_missing_or_not_called_are_refused(architecture: dict[str, Any]) -> None:
    check_part(architecture, TRAINING)
    for target in ("kv", "proj_out", "head"):
        other = TRAINING.model_copy(update={"lora": Lora(targets=(target,))})
        with pytest.raises(UserError, match=f"no linear layer '{target}' beside its classifier"):
            check_part(architecture, other)
    beit = describe("beit", "beit_base_patch16_224", VIT, SHAPE, 3)  # reads the weight of qkv, and does not call it
    with pytest.raises(UserError, match=r"does not depend on 'blocks\.0\.attn\.qkv\.down'"):
        check_part(beit, TRAINING)


def test_keys_of_adapters_belong_to_adapters() -> None:
    assert Training(trainable="lora").lora == Lora()
    assert "lora" not in Training().model_dump()
    assert TRAINING.overridden(TrainingOverrides(trainable="head")).lora is None
    with pytest.raises(ValueError, match="requires trainable lora, but trainable is head"):
        Training(trainable="head", lora=Lora())
    values = {"audit": "a", "datasets": {"digits": {}}, "architectures": {"vit": {"model": "vision_transformer"}}}
    adapters = {"training": {"trainable": "lora"}, "mechanisms": {"none": {}}}
    with pytest.raises(UserError, match=r"pretrained: none, but training\.trainable of mechanism 'none' is lora"):
        check_audit(values | adapters, "a.yaml")
