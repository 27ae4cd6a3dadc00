"""Build models: from an architecture's section of the config, or from architecture.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mia_audit.errors import UserError, first_line
from mia_audit.foreign_json import read_object
from mia_audit.models.catalogue import Family, Parameters, architectures
from mia_audit.models.memory import pass_of_one_record
from mia_audit.models.weights import load_weights
from mia_audit.registry import code_files

LEARNER = "torch-module"
"""The learner that trains all architectures described here."""

NEEDED = (
    "learner",
    "model",
    "arguments",
    "shape",
    "input_shape",
    "classes",
    "parameters",
    "activation_bytes",
    "normalisation",
)
"""The required keys of an architecture.json."""

MEASURED = ("stored_bytes", "activation_bytes")
"""Keys that describe a model's memory, not the model itself. No random generator is keyed by them."""


def describe(name: str, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """Build the model once, on the pool's shape, and return the metadata that rebuild it.

    Keys: name, learner, model, arguments (resolved), shape (of a record in the pool), input_shape (as the model takes
    it), classes, parameters (number of trainable parameters), stored_bytes (with buffers), activation_bytes (kept from
    a record's forward pass for its backward pass), batch_norm, batch_norm_layers, normalisation (the model's own mean
    and standard deviation of pixels, used if the data set states none; empty for 0.5). Raises UserError, which names
    the config's key, for an unknown model, for parameters or an image size that the model does not accept, for a table
    given to an image model, and for images given to a table model.
    """
    try:
        return _described(name, model, parameters, shape, classes)
    except UserError as error:
        raise UserError(f"architectures.{name}: {error}") from None


def _described(name: str, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    family = family_of(model)
    arguments = family.arguments(model, parameters, shape, classes)
    input_shape = family.input_shape(arguments)
    try:
        built = _seeded(family, model, arguments, seed=0)
        _check_patches(model, built, input_shape)
        logits, kept = pass_of_one_record(built.eval(), tuple(input_shape))
    except UserError:
        raise
    except Exception as error:  # libraries raise various errors for arguments that a model does not accept
        given = ", ".join(f"{key}={value}" for key, value in arguments.items())
        raise UserError(f"model '{model}' does not accept {given}: {first_line(error)}") from None
    if logits.shape != (1, classes):
        raise UserError(
            f"model '{model}' returns {list(logits.shape)} where [1, {classes}] was expected, so it is not a classifier"
        )
    layers = batch_norm_layers(built)
    return {
        "name": name,
        "learner": LEARNER,
        "model": model,
        "arguments": arguments,
        "shape": list(shape),
        "input_shape": list(input_shape),
        "classes": classes,
        "parameters": sum(parameter.numel() for parameter in built.parameters()),
        "stored_bytes": sum(value.numel() * value.element_size() for value in built.state_dict().values()),
        "activation_bytes": kept,
        "batch_norm": bool(layers),
        "batch_norm_layers": layers,
        "normalisation": {},
    }


def own_normalisation(model: str, channels: int) -> dict[str, list[float]]:
    """Return the mean and standard deviation of pixels in [0, 1], per channel, with which a timm model's published weights were trained.

    A model with fewer channels than the published one gets the mean over channels.
    """
    from mia_audit.models.timm_models import published_traits

    traits = published_traits(model)
    if traits is None:
        return {}
    pairs = {"mean": traits.mean, "std": traits.std}
    if channels == len(traits.mean):
        return {key: list(values) for key, values in pairs.items()}
    return {key: [sum(values) / len(values)] * channels for key, values in pairs.items()}


def build(model: str, parameters: Parameters, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Build a model for records of `shape`, and initialise it from the seed without changing global random state."""
    family = family_of(model)
    return _seeded(family, model, family.arguments(model, parameters, shape, classes), seed)


def construct(architecture: Mapping[str, Any], seed: int) -> nn.Module:
    """Build the model of an architecture.json, initialised from the seed."""
    return _seeded(family_of(architecture["model"]), architecture["model"], architecture["arguments"], seed)


def read_architecture(path: Path) -> dict[str, Any]:
    """Read the architecture.json of a torch module. Raises UserError, which names the file, if it is missing, damaged or of another learner."""
    architecture = read_object(path, "a file that `mia-audit architecture` wrote")
    try:
        check_architecture(architecture)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return architecture


def check_architecture(architecture: Mapping[str, Any]) -> None:
    """Raise UserError unless all keys of a torch module's architecture.json are present."""
    missing = [key for key in NEEDED if key not in architecture]
    if missing:
        raise UserError(
            f"the key '{missing[0]}' is missing; expected the architecture of a torch module, written by `mia-audit architecture`"
        )
    model, arguments = architecture["model"], architecture["arguments"]
    if not isinstance(model, str) or not isinstance(arguments, dict):
        raise UserError("model and arguments: expected a name and a mapping, written by `mia-audit architecture`")
    if model not in architectures and not code_files(model):
        from mia_audit.models.timm_models import check_arguments

        check_arguments(model, arguments)


def load(architecture: Mapping[str, Any], weights: Path) -> nn.Module:
    """Rebuild the model of an architecture.json with weights from a file, in eval mode and with frozen parameters."""
    model = construct(architecture, seed=0)
    load_weights(model, weights)
    return model.eval().requires_grad_(False)


def batch_norm_layers(model: nn.Module) -> list[str]:
    """Name the layers that normalise over the records of a batch, for which per-record gradients do not exist."""
    return [name for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)]


def family_of(model: str) -> Family:
    """Return the family of a model's name: a registered one, or timm's."""
    if model in architectures or code_files(model):
        return architectures[model]
    from mia_audit.models.timm_models import timm_family

    return timm_family


def _seeded(family: Family, model: str, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return family.construct(model, arguments)


def _check_patches(model: str, built: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Raise UserError for an image size that is not a multiple of the patch size, because timm would silently crop the image."""
    patch = getattr(getattr(built, "patch_embed", None), "patch_size", None)
    if patch is None:
        return
    for pixels, side in zip(input_shape[1:], patch, strict=True):
        if pixels < side or pixels % side:
            fits = max(side, round(pixels / side) * side)
            raise UserError(
                f"model '{model}': img_size {pixels} is not a multiple of the patch size, {side} pixels: {fits} fits"
            )
