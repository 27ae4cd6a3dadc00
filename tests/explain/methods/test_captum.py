"""captum's methods by name."""

import inspect
from typing import Any

import captum.attr
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.explain.methods.captum import LAYERED, METHODS, WRAPPERS, _required

from ..attribution import attribute

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:captum")

OPTIONS = {"explain": ["logit", "probability", "log_probability"], "explained_class": "true"}
RECORDS = [3, 1, 4, 15, 9, 2, 6]


def explain(subject: Any, name: str, rows: slice = slice(None), seed: int = 0) -> dict[str, Tensor]:
    return attribute(
        subject.model, subject.inputs[rows], subject.labels[rows], RECORDS[rows], f"captum:{name}", OPTIONS, seed
    )


@pytest.mark.parametrize("name", ["Saliency", "InputXGradient", "DeepLift", "GuidedBackprop", "FeatureAblation"])
def test_is_captums_own_method(name: str, convolution: Any) -> None:
    for quantity, model in (
        ("logit", convolution.model),
        ("probability", nn.Sequential(convolution.model, nn.Softmax(1))),
        ("log_probability", nn.Sequential(convolution.model, nn.LogSoftmax(1))),
    ):
        theirs = getattr(captum.attr, name)(model).attribute(
            convolution.inputs.clone().requires_grad_(), target=convolution.labels
        )
        torch.testing.assert_close(explain(convolution, name)[quantity], theirs.detach())


def test_layer_methods_read_the_last_convolution(convolution: Any) -> None:
    theirs = captum.attr.LayerGradCam(convolution.model, convolution.model[2]).attribute(
        convolution.inputs.clone().requires_grad_(), target=convolution.labels
    )
    torch.testing.assert_close(explain(convolution, "LayerGradCam")["logit"], theirs.detach())


def test_registered_explainers_agree_with_the_named_ones(subject: Any) -> None:
    named = explain(subject, "InputXGradient")
    ours = attribute(subject.model, subject.inputs, subject.labels, RECORDS, "ixg", OPTIONS, 0)
    for quantity in OPTIONS["explain"]:
        torch.testing.assert_close(
            named[quantity], ours[quantity], rtol=1e-4, atol=1e-5 * ours[quantity].abs().max().item()
        )


@pytest.mark.parametrize("name", ["NoiseTunnel+Saliency", "GradientShap", "DeepLiftShap", "NoiseTunnel+DeepLift"])
def test_random_methods_are_keyed_by_seed_and_record(name: str, convolution: Any) -> None:
    whole = explain(convolution, name)["logit"]
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002
    part = explain(convolution, name, slice(2, 5))["logit"]
    torch.testing.assert_close(part, whole[2:5])


def test_a_name_as_columns_write_it_is_the_same_explainer(convolution: Any) -> None:
    written, column = (explain(convolution, name)["logit"] for name in ("NoiseTunnel+Saliency", "NoiseTunnel-Saliency"))
    assert torch.equal(written, column)


def test_random_methods_change_with_the_seed_and_leave_global_state_alone(convolution: Any) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = (explain(convolution, "NoiseTunnel+Saliency", seed=seed)["logit"] for seed in (0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert not torch.allclose(first, second)


def test_the_list_of_methods_is_what_captum_has() -> None:
    left_out = {"FeaturePermutation", "LayerFeaturePermutation", "ShapleyValues"}
    supplied = {"forward_func", "model", "layer", "attribution_method", "inputs", "baselines", "target", "kwargs"}
    found = {
        name: kind
        for name, kind in vars(captum.attr).items()
        if inspect.isclass(kind) and issubclass(kind, captum.attr.Attribution) and hasattr(kind, "attribute")
        if name not in left_out and {*_required(kind), *_required(kind.attribute)} <= supplied
        if {"target", "kwargs"} & set(inspect.signature(kind.attribute).parameters)
    }
    required = {name: inspect.signature(kind).parameters for name, kind in found.items()}
    assert set(METHODS) == set(found)
    assert {name for name, names in required.items() if "attribution_method" in names} == set(WRAPPERS)
    assert {name for name, names in required.items() if "layer" in names} == LAYERED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("DeepLyft", r"unknown explainer 'captum:DeepLyft': did you mean 'DeepLift'"),
        ("Occlusion", r"unknown explainer 'captum:Occlusion'.*FeatureAblation"),
        ("FeaturePermutation", "unknown explainer"),
        ("Saliency+NoiseTunnel", "write the wrapper .NoiseTunnel. first"),
        ("NoiseTunnel", "write the wrapper"),
    ],
)
def test_names_that_cannot_run_are_one_line(name: str, message: str, convolution: Any) -> None:
    with pytest.raises(UserError, match=message) as error:
        explain(convolution, name)
    assert "\n" not in str(error.value)


def test_a_model_that_a_method_refuses_is_one_line(convolution: Any) -> None:
    table = convolution._replace(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).double().requires_grad_(False))
    with pytest.raises(UserError, match="'captum:LayerGradCam' reads a model's last convolution"):
        explain(table, "LayerGradCam")


class Functional(nn.Module):
    """The weights of a network of modules, with activations by functions or by one module that is called twice."""

    def __init__(self, network: nn.Sequential, activation: Any) -> None:
        super().__init__()
        self.network, self.activation = network, activation

    def forward(self, x: Tensor) -> Tensor:
        first, _, second, _, last = self.network
        return last(self.activation(second(self.activation(first(x)))))  # type: ignore[no-any-return]


def network(activation: Any = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Linear(6, 16), activation(), nn.Linear(16, 8), activation(), nn.Linear(8, 3))
    return nn.Sequential(*layers).eval().requires_grad_(False)


UNFIT = {
    "functional": lambda: Functional(network(), torch.relu),
    "anonymous": lambda: Functional(network(), lambda x: nn.ReLU()(x)),
    "reused": lambda: Functional(network(), nn.ReLU()),
    "GELU": lambda: network(nn.GELU),
}


@pytest.mark.parametrize("model", UNFIT)
@pytest.mark.parametrize(
    "name", ["DeepLift", "NoiseTunnel+DeepLift", "DeepLiftShap", "GuidedBackprop", "Deconvolution"]
)
def test_methods_that_read_modules_refuse_models_without_them(model: str, name: str) -> None:
    if model == "reused" and name in ("GuidedBackprop", "Deconvolution"):
        return  # these read every call of a module
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    with pytest.raises(UserError, match=r"does not (apply to|support) this model") as caught:
        attribute(
            UNFIT[model](), inputs, torch.zeros(5, dtype=torch.long), [0, 1, 2, 3, 4], f"captum:{name}", OPTIONS, 0
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["DeepLift", "GuidedBackprop", "Deconvolution"])
def test_two_spellings_with_modules_have_the_same_attributions(name: str) -> None:
    inputs, labels = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.zeros(5, dtype=torch.long)
    nested = nn.Sequential(network()[:2], nn.Sequential(*network()[2:4]), network()[4]).eval().requires_grad_(False)
    first, second = (
        attribute(model, inputs, labels, [0, 1, 2, 3, 4], f"captum:{name}", OPTIONS, 0) for model in (network(), nested)
    )
    for quantity in OPTIONS["explain"]:
        torch.testing.assert_close(first[quantity], second[quantity])
    saliency = attribute(network(), inputs, labels, [0, 1, 2, 3, 4], "captum:Saliency", OPTIONS, 0)
    assert not torch.allclose(first["logit"].abs(), saliency["logit"])
