"""The weights from which shadow models start: downloaded from a hub or read from a file, and adapted to the pool."""

import logging
import pickle
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mia_audit.errors import UserError, first_line
from mia_audit.models.architecture import construct, family_of
from mia_audit.models.weights import misfit, read_weights, remedy

NESTED = ("state_dict_ema", "model_ema", "state_dict", "model")
"""Keys under which training scripts store weights in a .pth file."""


@runtime_checkable
class Published(Protocol):
    """A family of models whose published weights can be adapted to an image size and to channels."""

    def fitted(self, model: str, arguments: Mapping[str, Any], tensors: Mapping[str, Tensor] | None) -> nn.Module:
        """Build the model with its published or the given weights, including the classifier. Raises if this fails."""


def classifier(model: nn.Module) -> nn.Module | None:
    """Return the layer that outputs the logits: timm's classifier, else the last linear layer, else None."""
    named = getattr(model, "get_classifier", None)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    layer = named() if named is not None else layers[-1] if layers else None
    return layer if isinstance(layer, nn.Module) and list(layer.parameters()) else None


def classifier_names(model: nn.Module) -> set[str]:
    """Name the classifier's weights."""
    layer = classifier(model)
    own = {id(value) for value in layer.parameters()} if layer else set()
    return {name for name, value in model.named_parameters() if id(value) in own}


def fetch(architecture: Mapping[str, Any], source: str, where: str) -> dict[str, Tensor]:
    """Return all weights except the classifier's, from the `hub` or from a .safetensors or .pth file.

    Raises UserError for weights that cannot be loaded or belong to another architecture; `where` names the config's
    key.
    """
    model, arguments = architecture["model"], architecture["arguments"]
    family = family_of(model)
    tensors = None if source == "hub" else read_tensors(Path(source), where)
    own = construct(architecture, seed=0)
    if isinstance(family, Published):
        said = f"weights of another architecture than '{model}' with these parameters" if tensors else _unfetched(model)
        try:
            with _silent():
                fitted = family.fitted(model, arguments, tensors).state_dict()
        except Exception as error:  # the hub's client and timm raise various errors
            raise UserError(f"{where}: {source}: {said} ({_mismatch(error)})") from None
    elif tensors is None:
        raise UserError(
            f"{where}: hub: there are no published weights of '{model}'; name a file of weights, or choose one of timm's models"
        )
    else:
        fitted = dict(tensors)
    names = classifier_names(own)
    start = {name: value for name, value in fitted.items() if name not in names}
    if odd := misfit(start, own, names):
        raise UserError(f"{where}: {source}: weights of another architecture: {odd}")
    if broken := next((name for name, value in start.items() if not torch.isfinite(value).all()), None):
        raise UserError(f"{where}: {source}: '{broken}' holds numbers that are not finite; download the weights again")
    return start


def read_start(architecture: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Read initial weights, with or without the classifier's. Raises UserError, which names the file, if it is missing or has other weights."""
    tensors = read_weights(path)
    own = construct(architecture, seed=0)
    if odd := misfit(tensors, own, classifier_names(own)):
        raise UserError(f"{path}: weights of another architecture: {odd}. {remedy(path)}")
    return tensors


def read_tensors(path: Path, where: str) -> dict[str, Tensor]:
    """Read a .safetensors or .pth file of weights. A pickle that contains anything else is refused, and none of its code is run."""
    if not path.is_file():
        raise UserError(f"{where}: {path}: no such file; expected weights as .safetensors or .pth")
    try:
        if path.suffix == ".safetensors":
            return read_weights(path)
        with warnings.catch_warnings(action="ignore"):  # torch warns of pickles that are refused below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise UserError(f"{where}: {path}: truncated, or not safetensors; download it again") from None
    except pickle.UnpicklingError:
        raise UserError(
            f"{where}: {path}: a pickle that holds more than weights, or no weights; none of its code was run. Save only the"
            " state_dict, preferably as .safetensors"
        ) from None
    except Exception as error:  # reading an arbitrary file may raise anything
        raise UserError(f"{where}: {path}: truncated or not weights ({first_line(error)})") from None
    for key in NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()) or not content:
        raise UserError(f"{where}: {path}: no state_dict: expected names and tensors")
    return {str(name).removeprefix("module."): value for name, value in content.items()}


def _unfetched(model: str) -> str:
    return f"the published weights of '{model}' cannot be downloaded; download them on a machine with a network, and name the file here"


def _mismatch(error: Exception) -> str:
    """Return the first mismatch in torch's message, or the first line of any other error."""
    listed = [line.strip() for line in str(error).splitlines()[1:] if "state_dict" in str(error)]
    if not listed:
        return first_line(error)
    return listed[0].partition(": copying")[0] if listed[0].startswith("size") else listed[0].split(", ")[0].rstrip(".")


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress the hub client's warnings: errors are reported in one line."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
