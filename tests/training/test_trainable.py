"""What is trained: everything, the classifier, or the bias terms."""

import pytest
import torch
from torch import nn

from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.training.loop import fit
from mia_audit.training.section import Training
from mia_audit.training.trainable import PARTS


def trained(model: nn.Module) -> set[str]:
    return {name for name, value in model.named_parameters() if value.requires_grad}


def test_all_bias_and_head_of_every_model(model_and_shape: tuple[nn.Module, tuple[int, ...]]) -> None:
    model, _ = model_and_shape
    names = {name for name, _ in model.named_parameters()}
    PARTS["all"](model)
    assert trained(model) == names
    PARTS["bias"](model)
    assert trained(model) == {name for name in names if name.endswith("bias")} != set()
    model.requires_grad_(True)
    PARTS["head"](model)
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
    PARTS[part](mlp)
    before = {name: value.detach().clone() for name, value in mlp.named_parameters()}
    job = Job(mlp, 40, epsilon, Training(epochs=2, batch=10, weight_decay=0.1), 64, b"test")
    fit(job, mechanisms[mechanism].protect(Mechanism(mechanism=mechanism), job), *table)
    moved = {name for name, value in mlp.named_parameters() if not torch.equal(value, before[name])}
    assert moved == trained(mlp)


@pytest.mark.parametrize("part", ["head", "bias"])
def test_a_model_without_such_a_part_is_refused(part: str) -> None:
    with pytest.raises(UserError, match=r"training\.train"):
        PARTS[part](nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten()))
