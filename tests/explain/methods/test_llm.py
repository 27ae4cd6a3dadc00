"""The maps' own explanations against autograd and their formulas."""

import numpy as np
import pytest
import torch
from torch import nn

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainers
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import build
from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.families import columns, families
from mia_audit.training.task import Records

from ..attribution import attribute

NAMES = ("llm-global", "llm-local", "llm-gradient", "llm-top")
OPTIONS = {"explain": ("logit", "probability"), "explained_class": "predicted", "llm_top": 2}


def subject(
    shape: tuple[int, ...], projection: object = "none"
) -> tuple[LocallyLinearMaps, torch.Tensor, torch.Tensor]:
    model = build("locally-linear-maps", {"maps": 3, "beta": 2.0, "projection": projection}, shape, 4, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(generator=random)
    assert isinstance(model, LocallyLinearMaps)
    inputs = torch.randn(6, *shape, generator=random, dtype=torch.float64)
    return model.double().eval().requires_grad_(False), inputs, torch.arange(6) % 4


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
@pytest.mark.parametrize("projection", ["none", 4])
@pytest.mark.parametrize("explained_class", ["predicted", "true"])
def test_the_gradient_in_closed_form_is_autograds(
    shape: tuple[int, ...], projection: object, explained_class: str
) -> None:
    model, inputs, labels = subject(shape, projection)
    options = OPTIONS | {"explained_class": explained_class}
    found = attribute(model, inputs, labels, range(6), "llm-gradient", options, 0)
    points = inputs.clone().requires_grad_()
    logits = model(points)
    classes = labels if explained_class == "true" else logits.argmax(dim=1)
    for quantity, values in (("logit", logits), ("probability", logits.softmax(dim=1))):
        chosen = values.gather(1, classes[:, None]).sum()
        (expected,) = torch.autograd.grad(chosen, points, retain_graph=True)
        assert torch.allclose(found[quantity], expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
def test_local_maps_are_filters_by_their_shares(shape: tuple[int, ...]) -> None:
    model, inputs, labels = subject(shape, 4)
    classes = model(inputs).argmax(dim=1)
    scores = model.scores(model.projected(inputs))
    shares = (2.0 * scores).softmax(dim=1)
    filters = model.filters()
    local = attribute(model, inputs, labels, range(6), "llm-local", OPTIONS, 0)
    every = attribute(model, inputs, labels, range(6), "llm-global", OPTIONS, 0)["logit"].reshape(6, 3, -1)
    top = attribute(model, inputs, labels, range(6), "llm-top", OPTIONS, 0)["logit"].reshape(6, 2, -1)
    chances = model(inputs).softmax(dim=1)
    for i, k in enumerate(classes.tolist()):
        maps = torch.einsum("mk,mkd->kd", shares[i], filters)
        assert torch.allclose(local["logit"][i].flatten(), maps[k])
        change = chances[i, k] * (maps[k] - chances[i] @ maps)
        assert torch.allclose(local["probability"][i].flatten(), change)
        assert torch.allclose(every[i], filters[:, k])
        order = shares[i, :, k].argsort(descending=True)[:2]
        assert torch.allclose(top[i], shares[i, order, k, None] * filters[order, k])
    assert local["logit"].shape == inputs.shape


def test_all_maps_at_the_top_sum_to_the_local_map() -> None:
    model, inputs, labels = subject((5,))
    options = OPTIONS | {"llm_top": 9}  # more than there are
    top = attribute(model, inputs, labels, range(6), "llm-top", options, 0)["logit"]
    assert top.shape == (6, 3, 5)
    local = attribute(model, inputs, labels, range(6), "llm-local", options, 0)["logit"]
    assert torch.allclose(top.sum(dim=1), local)


@pytest.mark.parametrize("name", NAMES)
def test_another_model_is_refused_in_one_line(name: str) -> None:
    _, inputs, labels = subject((5,))
    with pytest.raises(UserError, match=f"explainer '{name}' explains only locally-linear-maps, not Linear"):
        attribute(nn.Linear(5, 4).double(), inputs, labels, range(6), name, OPTIONS, 0)


def test_they_share_a_family_that_other_models_do_not_have() -> None:
    section = Explainers(methods=("ixg", *NAMES), explain=("logit", "probability"), vectors=0)
    found = families(section, "locally-linear-maps")
    assert found["llm"] == {
        "explainers": list(NAMES),
        "explain": ["logit", "probability"],
        "explained_class": "predicted",
        "llm_top": 3,
    }
    assert "llm" not in families(section, "vision_transformer")
    named = columns("llm", found["llm"])
    assert [name for name in named if name.endswith("_l1")] == [
        "llm-global_l1",
        "llm-local_l1",
        "llm-local_probability_l1",
        "llm-gradient_l1",
        "llm-gradient_probability_l1",
        "llm-top_l1",
    ]


def test_their_summaries_are_signals_and_global_ones_are_the_classes() -> None:
    model, inputs, labels = subject((5,))
    options = families(Explainers(methods=NAMES, llm_top=2), "locally-linear-maps")["llm"]
    records = Records(inputs.float().numpy(), labels.numpy(), {}, np.arange(len(labels)))
    signals = model_signals(TorchModel(model.float(), batch=4), records, SignalsTask("llm", options, 0))
    assert list(signals) == columns("llm", options)
    predicted = model(inputs.float()).argmax(dim=1).numpy()
    for k in np.unique(predicted):
        assert len(np.unique(signals["llm-global_l2"][predicted == k])) == 1
    assert len(np.unique(signals["llm-local_l2"])) == 6
