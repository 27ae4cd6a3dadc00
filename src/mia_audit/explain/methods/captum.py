"""Captum's methods, by the names of their classes; in `NoiseTunnel+Saliency` the first method wraps the second."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from mia_audit.errors import UserError, suggest
from mia_audit.explain.catalogue import Explainer, Kind, explainers
from mia_audit.seeds import seed_for

if TYPE_CHECKING:
    from torch import Tensor, nn

    from mia_audit.explain.batch import Batch

WRAPPER = "attribution_method"
CHECKED = 8
"""Number of records with which it is checked whether a method applies to a model."""

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
"""Captum's methods that need no further settings. They are listed here so that a config is checked without importing captum.

Methods that permute features between the records of a batch, or try all n! orders of n inputs, are left out.
"""

LAYERED = {name for name in METHODS if name.startswith("Layer")} | {"GuidedGradCam", "InternalInfluence"}
"""Methods that read the model's last convolution."""

READ: dict[str, tuple[Callable[[Kind], bool], str]] = {
    **dict.fromkeys(LAYERED, (lambda kind: kind.channels, "models of images with convolutions")),
    **dict.fromkeys(("LRP", "LayerLRP"), (lambda kind: kind.plain, "your own models with plain layers (linear, ReLU)")),
}
"""Methods that support only some built-in models: a test of the model's kind, and a description of the supported models."""

READS_RELU = {"Deconvolution", "GuidedBackprop", "GuidedGradCam"}
"""Methods that change the gradient of modules nn.ReLU, and of nothing else."""

DEEP_LIFT = {"DeepLift", "DeepLiftShap", "LayerDeepLift", "LayerDeepLiftShap"}
"""Methods that replace the gradients of modules of activations; DeepLift's attributions add up to f(x) − f(0)."""

INCOMPLETE = 0.05
"""Largest error of that sum, relative to the mean change, that rounding and small changes explain."""

ACTIVATIONS = (
    *("Elu", "Gelu", "Hardswish", "Hardtanh", "LeakyRelu", "Relu", "Sigmoid", "Silu", "Softplus", "Tanh"),
    *("LogSigmoid", "Mish", "PreluKernel", "Selu", "Hardsigmoid"),
)
"""Activations, by the beginning of the names of their gradients."""

LABELS = {"NoiseTunnel-Saliency": "SmoothGrad (captum)"}
"""Labels of explainers whose class name is not a good label."""


def captum_explainer(names: Sequence[str]) -> Explainer:
    """Return an explainer made of captum's classes of these names, the outermost first.

    The layer is the model's last convolution, a required baseline is 0, and all other arguments have captum's defaults.
    The explainer raises UserError for models that the method does not support.
    """

    def attribute(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
        return {quantity: _attribute(names, batch, quantity) for quantity in batch.quantities}

    written = "-".join(names)
    reads, what = next((READ[name] for name in names if name in READ), (None, ""))
    return Explainer(
        attribute,
        multiplied=names[-1] not in GRADIENTS,
        label=LABELS.get(written, written),
        reads=reads,
        reads_what=what,
        check=lambda: check_names(names),
        applies=(lambda model, inputs: check_applies(names, model, inputs)) if _hooking(names) else None,
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


def _hooking(names: Sequence[str]) -> bool:
    return bool((READS_RELU | DEEP_LIFT) & set(names))


_applying: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""The methods that were found to apply, by module."""


def check_applies(names: Sequence[str], model: nn.Module, inputs: Tensor) -> None:
    """Raise UserError if a method hooks modules of activations, but the model computes activations in another way.

    Such a method returns input × gradient, or the gradient, under its own name. DeepLift is known by its attributions,
    which must add up to the change of the logit; the others by the modules that the model calls.
    """
    known = _applying.setdefault(model, set())
    name = next(iter((READS_RELU | DEEP_LIFT) & set(names)))
    if name in known:
        return
    where = f"explainer 'captum:{'+'.join(names)}' does not apply to this model"
    if name in READS_RELU:
        relus, others = _activations(model, inputs)
        if others or not relus:
            what = f"it computes {others[0]} outside of them" if others else "it has none"
            raise UserError(
                f"{where}: it reads modules nn.ReLU, and {what}: give every activation a module nn.ReLU of its own, or leave the"
                " explainer out"
            )
    else:
        error, change = _deep_lift_error(model, inputs)
        if error > INCOMPLETE * change:
            raise UserError(
                f"{where}: its attributions must add up to f(x) − f(0), and miss it by {100 * error / max(change, 1e-30):.3g} %,"
                " since it reads modules such as nn.ReLU, each called once, and neither functions nor GELU, normalisation or attention:"
                " give every activation a module of its own, or leave the explainer out (ig is complete for any model)"
            )
    known.add(name)


def _activations(model: nn.Module, inputs: Tensor) -> tuple[int, list[str]]:
    """Return the number of calls of modules nn.ReLU, and the names of all other activations, from the graph of gradients."""
    from torch import enable_grad
    from torch.nn import ReLU

    calls: list[Any] = []
    hooks = [
        module.register_forward_hook(lambda *_: calls.append(None))
        for module in model.modules()
        if isinstance(module, ReLU)
    ]
    try:
        with enable_grad():
            logits = model(inputs.detach().clone().requires_grad_())
    finally:
        for hook in hooks:
            hook.remove()
    found, waiting, seen = [], [logits.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind = node.name().partition("Backward")[0]
        found += [kind] if kind in ACTIVATIONS else []
        waiting += [one for one, _ in node.next_functions]
    relus = found.count("Relu")
    others = [kind for kind in found if kind != "Relu"] + ["Relu"] * max(0, relus - len(calls))
    return min(relus, len(calls)), others


def _deep_lift_error(model: nn.Module, inputs: Tensor) -> tuple[float, float]:
    """Return DeepLift's mean error of the sum of attributions, and the mean change of the logit from 0 to the inputs."""
    import torch

    with torch.no_grad():
        logits, base = model(inputs), model(torch.zeros_like(inputs))
    classes = logits.argmax(dim=1)
    change = (logits - base).gather(1, classes[:, None])[:, 0]
    attributed = _run(["DeepLift"], _build(["DeepLift"], model, "logit"), inputs, classes)
    error = attributed.flatten(start_dim=1).sum(dim=1) - change
    return float(error.abs().mean()), float(change.abs().mean())


def _attribute(names: Sequence[str], batch: Batch, quantity: str) -> Tensor:
    import torch

    if _hooking(names):
        check_applies(names, batch.model, batch.inputs[:CHECKED])
    method = _build(names, batch.model, quantity)
    if not RANDOM & set(names):
        return _run(names, method, batch.inputs, batch.classes)
    parts = []
    for index, record in enumerate(batch.records):
        with _seeded(seed_for(batch.draws, "captum", *names, record)):
            parts.append(_run(names, method, batch.inputs[index : index + 1], batch.classes[index : index + 1]))
    return torch.cat(parts)


def _run(names: Sequence[str], method: Any, inputs: Tensor, classes: Tensor) -> Tensor:
    import torch

    from mia_audit.runtime.device import is_retryable

    arguments = {"inputs": inputs.detach().clone().requires_grad_(), "target": classes}
    innermost = _method(names[-1])  # of a wrapper; else the method itself
    if "baselines" in _required(innermost.attribute):
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
        kind = _method(name)
        required = _required(kind)
        supplied = {"forward_func": explained, "model": explained, WRAPPER: method}
        if "layer" in required:
            supplied["layer"] = _last_convolution(model, name)
        method = kind(**{argument: supplied[argument] for argument in required})
    return method


def _explained(model: nn.Module, quantity: str) -> nn.Module:
    """The model as one module for methods that use hooks; for a probability, a softmax follows."""
    from torch import nn

    last = {"probability": nn.Softmax(dim=1), "log_probability": nn.LogSoftmax(dim=1)}
    return model if quantity == "logit" else nn.Sequential(model, last[quantity]).eval()


def _last_convolution(model: nn.Module, name: str) -> nn.Module:
    from torch.nn.modules.conv import _ConvNd

    layers = [module for module in model.modules() if isinstance(module, _ConvNd)]
    if not layers:
        raise UserError(f"explainer 'captum:{name}' reads a model's last convolution, but this model has none")
    return layers[-1]


def _method(name: str) -> Any:
    import captum.attr

    return getattr(captum.attr, name)


def _required(function: Callable[..., Any]) -> list[str]:
    """List the arguments without a default."""
    parameters = inspect.signature(function).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return [parameter.name for parameter in named if parameter.default is parameter.empty and parameter.name != "self"]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators used by captum, and restore them afterwards."""
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
