"""Captum's methods, by the names of their classes; in `NoiseTunnel+Saliency` the first method wraps the second."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError, suggest
from mia_audit.explain.catalogue import Explainer, Kind, explainers
from mia_audit.explain.randomness import Randomness, with_draws
from mia_audit.seeds import seed_for

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mia_audit.explain.batch import Batch

WRAPPER = "attribution_method"
SUPPLIED = {"forward_func", "model", "layer", WRAPPER, "inputs", "baselines", "target", "kwargs"}
"""Required arguments of captum's constructors and `attribute` methods that this package supplies."""

RANDOM = {
    "DeepLiftShap",
    "GradientShap",
    "KernelShap",
    "LayerGradientShap",
    "Lime",
    "NoiseTunnel",
    "ShapleyValueSampling",
}
"""Methods that draw from global generators, and therefore explain the records one at a time, each with its own seed."""

LEFT_OUT = {"FeaturePermutation", "LayerFeaturePermutation", "ShapleyValues"}
"""Unsupported methods: two of them permute features between the records of a batch, and one tries all n! orders of n inputs."""

GRADIENTS = {"Deconvolution", "GuidedBackprop", "Saliency"}
"""Methods whose attributions are in units of the quantity's gradient; other methods' are in units of the quantity."""

WRAPPERS = ("NoiseTunnel",)
"""Methods that wrap another method."""

METHODS = (
    *("Deconvolution", "DeepLift", "DeepLiftShap", "FeatureAblation", "GradientShap", "GuidedBackprop"),
    *("GuidedGradCam", "InputXGradient", "IntegratedGradients", "InternalInfluence", "KernelShap", "LRP"),
    *("LayerConductance", "LayerDeepLift", "LayerDeepLiftShap", "LayerFeatureAblation", "LayerGradCam"),
    *("LayerGradientShap", "LayerGradientXActivation", "LayerIntegratedGradients", "LayerLRP", "Lime"),
    *("NoiseTunnel", "Saliency", "ShapleyValueSampling"),
)
"""Captum's methods that need no further settings. They are listed here so that a config is checked without importing captum."""

LAYERED = {name for name in METHODS if name.startswith("Layer")} | {"GuidedGradCam", "InternalInfluence"}
"""Methods that read the model's last convolution."""

READ: dict[str, tuple[Callable[[Kind], bool], str]] = {
    **dict.fromkeys(LAYERED, (lambda kind: kind.channels, "models of images with convolutions")),
    **dict.fromkeys(("LRP", "LayerLRP"), (lambda kind: kind.plain, "your own models with plain layers (linear, ReLU)")),
}
"""Methods that support only some built-in models: a test of the model's kind, and a description of the supported models."""

LABELS = {"NoiseTunnel-Saliency": "SmoothGrad (captum)"}
"""Labels of explainers whose class name is not a good label."""


def captum_explainer(names: Sequence[str]) -> Explainer:
    """Return an explainer made of captum's classes of these names, the outermost first.

    The layer is the model's last convolution, a required baseline is 0, and all other arguments have captum's defaults.
    The explainer raises UserError for models that the method does not support.
    """
    random = bool(RANDOM & set(names))

    def attribute(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
        return {quantity: _attribute(names, batch, quantity) for quantity in batch.quantities}

    written = "-".join(names)
    options = (Randomness,) if random else ()
    drawn = with_draws(attribute) if random else attribute
    reads, what = next((READ[name] for name in names if name in READ), (None, ""))
    return Explainer(
        drawn,
        options,
        multiplied=names[-1] not in GRADIENTS,
        label=LABELS.get(written, written),
        reads=reads,
        reads_what=what,
        check=lambda: check_names(names),
    )


# names of columns have - instead of +, because + joins the names of signals; both forms are accepted
explainers.register_pattern(
    r"captum:(?P<names>\w+(?:[+-]\w+)*)",
    lambda match: captum_explainer(re.split("[+-]", match["names"])),
    example="captum:DeepLift",
)


def check_names(names: Sequence[str]) -> None:
    """Raise UserError unless all names are captum's, wrappers first and one method last."""
    for position, name in enumerate(reversed(names)):
        if name not in METHODS:
            raise UserError(f"unknown explainer 'captum:{'+'.join(names)}': {suggest(name, METHODS)}")
        if (name in WRAPPERS) != (position > 0):
            raise UserError(
                f"explainer 'captum:{'+'.join(names)}': write the wrapper ({', '.join(WRAPPERS)}) first and one method last,"
                " as in captum:NoiseTunnel+Saliency"
            )


def _attribute(names: Sequence[str], batch: Batch, quantity: str) -> Tensor:
    import torch

    method = _build(names, batch.model, quantity)
    if not RANDOM & set(names):
        return _run(names, method, batch.inputs, batch.classes)
    parts = []
    for index, record in enumerate(batch.records):
        with _seeded(seed_for(batch.seed, "captum", *names, record)):
            parts.append(_run(names, method, batch.inputs[index : index + 1], batch.classes[index : index + 1]))
    return torch.cat(parts)


def _run(names: Sequence[str], method: Any, inputs: Tensor, classes: Tensor) -> Tensor:
    import torch

    from mia_audit.runtime.device import is_retryable

    arguments = {"inputs": inputs.detach().clone().requires_grad_(), "target": classes}
    required = _required(type(method).attribute)
    if "baselines" in required or (WRAPPER in _required(type(method)) and names[-1] in _with_baselines()):
        arguments["baselines"] = torch.zeros_like(inputs[:1]).expand(2, *inputs.shape[1:]).contiguous()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # captum warns about hooks on activations at every call
            attributions: Tensor = method.attribute(**arguments)
    except Exception as error:  # captum raises various errors for models that a method does not support
        if is_retryable(error):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"explainer 'captum:{'+'.join(names)}' does not support this model: {reason}") from None
    return attributions.detach()


def _build(names: Sequence[str], model: nn.Module, quantity: str) -> Any:
    explained = _explained(model, quantity)
    method: Any = None
    check_names(names)
    for name in reversed(names):
        kind = methods_of_captum()[name]
        required = _required(kind)
        supplied = {"forward_func": explained, "model": explained, WRAPPER: method}
        if "layer" in required:
            supplied["layer"] = _last_convolution(model, name)
        method = kind(**{argument: supplied[argument] for argument in required})
    return method


def _explained(model: nn.Module, quantity: str) -> nn.Module:
    """The model as one module for methods that use hooks; for the probability, a softmax follows."""
    from torch import nn

    return model if quantity == "logit" else nn.Sequential(model, nn.Softmax(dim=1)).eval()


def _last_convolution(model: nn.Module, name: str) -> nn.Module:
    from torch.nn.modules.conv import _ConvNd

    layers = [module for module in model.modules() if isinstance(module, _ConvNd)]
    if not layers:
        raise UserError(f"explainer 'captum:{name}' reads a model's last convolution, but this model has none")
    return layers[-1]


@cache
def methods_of_captum() -> dict[str, Any]:
    """Return captum's attribution classes that need no further settings, by name."""
    import captum.attr

    kinds = {
        name: kind
        for name, kind in vars(captum.attr).items()
        if inspect.isclass(kind) and issubclass(kind, captum.attr.Attribution) and hasattr(kind, "attribute")
    }
    return {
        name: kind
        for name, kind in kinds.items()
        if name not in LEFT_OUT
        and set(_required(kind)) | set(_required(kind.attribute)) <= SUPPLIED
        and ({"target", "kwargs"} & set(inspect.signature(kind.attribute).parameters))
    }


def _with_baselines() -> set[str]:
    return {name for name, kind in methods_of_captum().items() if "baselines" in _required(kind.attribute)}


def _required(function: Callable[..., Any]) -> list[str]:
    """List the arguments without a default."""
    parameters = inspect.signature(function).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return [parameter.name for parameter in named if parameter.default is parameter.empty and parameter.name != "self"]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators used by captum, and restore them afterwards."""
    import numpy as np
    import torch

    # captum's own draws come from NumPy's and torch's global state
    state = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
