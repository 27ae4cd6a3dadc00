"""Precision: what is rounded, what is not, and that it ends with its context."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mia_audit.explain.catalogue import Explainers
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.runtime.device import computing
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.families import families
from mia_audit.training.loop import fit
from mia_audit.training.section import Training
from mia_audit.training.task import Records

TINY = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}


def backends() -> list[str]:
    cudnn: Any = torch.backends.cudnn
    return [torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision]


@pytest.mark.parametrize("features", [21, 33, 784])
def test_a_record_of_nan_does_not_reach_its_neighbours_in_bf16(features: int) -> None:
    """With AMX, torch's bf16 products read past the end of a row."""
    layer, records = nn.Linear(features, 12), torch.randn(100, features)
    with computing(layer, "bf16"), torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        for place in (0, 16, 31, 50, 98, 99):
            records[place] = torch.nan
            hit = F.linear(records, layer.weight).isnan().any(dim=1)
            assert hit.nonzero().flatten().tolist() == [place]
            records[place] = 0


@pytest.mark.parametrize(("precision", "inside"), [("float32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")])
def test_the_precision_of_products_is_set_and_restored(precision: Any, inside: str) -> None:
    before = backends()
    with pytest.raises(ZeroDivisionError), computing(nn.Linear(2, 2), precision):
        assert backends() == [inside, inside]
        assert torch.is_autocast_enabled("cpu") == (precision == "bf16")
        raise ZeroDivisionError
    assert backends() == before and not torch.is_autocast_enabled("cpu")


def test_bf16_rounds_the_features_but_not_the_logits() -> None:
    model = build("vision_transformer", TINY, (1, 8, 8), 10, 0).eval().requires_grad_(False)
    inputs = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = model(inputs)
    with computing(model, "bf16"):
        rounded = model(inputs)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, plain) and torch.allclose(rounded, plain, atol=0.05)
    assert len(rounded.unique()) > 0.9 * rounded.numel()  # logits in bfloat16 would have many ties
    assert torch.equal(model(inputs), plain)


def test_signals_in_bf16_are_close_to_those_in_float32() -> None:
    model = build("vision_transformer", TINY, (1, 8, 8), 10, 0).eval().requires_grad_(False)
    inputs = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    records = Records(inputs.numpy(), np.zeros(32, dtype=np.int64), {}, np.arange(32))
    section = Explainers(methods=("ixg",))
    exact, rounded = (
        model_signals(TorchModel(model, batch=32), records, SignalsTask("gradient", options, 0))
        for options in (
            families(chosen, "vision_transformer")["gradient"]
            for chosen in (section, section.model_copy(update={"precision": "bf16"}))
        )
    )
    change = np.abs(np.log(rounded["ixg_l1"] / exact["ixg_l1"]))
    assert 0 < np.median(change) < 0.03


def test_a_family_depends_on_precision_only_where_it_is_set() -> None:
    assert "precision" not in families(Explainers(), "mlp")["gradient"]
    assert families(Explainers(precision="tf32"), "mlp")["gradient"]["precision"] == "tf32"


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_training_in_bf16_moves_the_weights_in_the_same_direction(mechanism: str) -> None:
    inputs = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(32) % 3
    moved = []
    for precision in ("float32", "bf16"):
        model = build("vision_transformer", TINY, (1, 8, 8), 3, 0)
        start = torch.cat([value.detach().flatten() for value in model.parameters()])
        training = Training(epochs=2, batch=32, optimizer="sgd", learning_rate=0.05, precision=precision)  # type: ignore[arg-type]
        job = Job(
            model=model,
            records=32,
            epsilon=math.inf if mechanism == "none" else 8,
            training=training,
            micro_batch=32,
            key=b"test",
        )
        protection = mechanisms[mechanism].protect(
            Mechanism(mechanism=mechanism, **({} if mechanism == "none" else {"accountant": "rdp"}), delta=1e-3), job
        )
        with computing(model, training.precision or "float32"):
            fit(job, protection, inputs, labels)
        assert all(value.dtype == torch.float32 for value in model.parameters())
        moved.append(torch.cat([value.detach().flatten() for value in model.parameters()]) - start)
    assert torch.nn.functional.cosine_similarity(moved[0], moved[1], dim=0) > 0.99
    assert not torch.equal(moved[0], moved[1])
