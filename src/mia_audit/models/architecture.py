"""Build models: from an architecture's section of the config, or from architecture.json.

The memory that a pass through a model takes per record, and the number of records that fit on a GPU at once.

The weights from which shadow models start: downloaded from a hub or read from a file, and adapted to the pool.
"""

import logging
import math
import pickle
import random
import re
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mia_audit.errors import UserError, first_line
from mia_audit.foreign_json import read_object
from mia_audit.models.catalogue import Family, Parameters, architectures
from mia_audit.models.weights import load_weights, misfit, read_weights, remedy
from mia_audit.registry import code_files
from mia_audit.runtime.device import fitting


def batch_for(architecture: Mapping[str, Any], most: int, device: str) -> int:
    """Return how many records to process at once: `most`, or on a GPU as many as fit, given the memory that one record's pass keeps."""
    if device == "cpu":
        return most
    free, _ = torch.cuda.mem_get_info()
    return fitting(most, architecture["activation_bytes"], free)


def pass_of_one_record(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """Return a model's logits for a record of zeros, and the bytes that the forward pass keeps for the backward pass.

    Tensors of the model itself, such as its parameters, are not counted.
    """
    saved: list[int] = []
    own = (*model.parameters(), *model.buffers())
    with _counting(saved, {value.untyped_storage().data_ptr() for value in own}):
        logits = model(torch.zeros(1, *input_shape).requires_grad_())
    return logits.detach(), sum(saved)


@contextmanager
def _counting(saved: list[int], skip: set[int]) -> Iterator[None]:
    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in skip:
            saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


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


def keyed(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an architecture.json that describe the model itself, by which random generators are keyed."""
    return {name: value for name, value in architecture.items() if name not in MEASURED}


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


LONE = "more than 1 value per channel"
"""Part of PyTorch's message on a batch norm that is given a single value."""


def lone_record_message(records: int) -> str:
    """Say that a batch of one record cannot be normalised over its records."""
    return (
        f"training.batch: the last batch of a training set of {records} records has a single one, which BatchNorm cannot"
        " normalise: choose another batch, or a model with LayerNorm or GroupNorm"
    )


def trains_on_one_record(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether a model in training mode takes a batch of one record: a batch norm of single values does not."""
    try:
        model.train()(torch.zeros(1, *input_shape))
    except ValueError as error:
        if LONE in str(error):
            return False
        raise
    return True


EXTREME = (1e15, -1e30, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-44, -1e-44, 1e-8, -1e-8, 1.0)
"""Values of records that a model has to take, because none may end private training.

The remainder of a tiny negative number is rounded to the divisor, an index out of range.
"""

ANSWERS = 1e-3
"""Largest difference, absolute and relative, between a model's answers to the same records in two passes."""


def changing_state(model: nn.Module, input_shape: tuple[int, ...]) -> str | None:
    """Name what a pass changes, such as running statistics; None if there is nothing.

    It is a buffer, a frozen parameter, an attribute of a module, of its class or of its objects, or the later answers.
    Passes run over random and over extreme records, most of them without and with a backward pass, on the model itself in
    its mode: a hook that is a closure over the model would write past a copy. What the first one of either kind only sets
    up, such as a table of positions, does not count, unless a later one changes it. Parameters and buffers must not even
    be written to or replaced by equal ones: other records could change them.
    """
    like = next((value for value in model.parameters() if value.is_floating_point()), torch.empty(0))
    trained = [value for value in model.parameters() if value.requires_grad]
    generator = torch.Generator().manual_seed(0)
    shared = _shared_generators()
    before, written = _state(model), []
    answers: list[Tensor] = []
    drawn = [scale * torch.randn(3, *input_shape, generator=generator) for scale in (1.0, 10.0)]
    extreme = torch.stack([torch.full(input_shape, value) for value in EXTREME])
    first, *others = torch.split(extreme, 3)
    passes = [(records, learning) for records in (*drawn, first) for learning in (False, True)]
    with torch.random.fork_rng():
        for records, learning in (*passes, *((records, False) for records in others), (drawn[0], True)):
            torch.manual_seed(0)
            with torch.set_grad_enabled(learning):
                found = model(records.to(like.device, like.dtype))
            if trained and found.requires_grad:
                torch.autograd.grad(found.sum(), trained, allow_unused=True)
            if shared != _shared_generators():
                return "the generator of random or NumPy, from which all records of a pass draw"
            after = _state(model)
            added = list(after) if len(answers) > 1 else []  # the first passes may add what they set up
            for name in [*before, *added]:
                if name not in before or not _equal(before[name], after.get(name)):
                    return name
            before = after
            written.append(_written(model))
            answers.append(found.detach())
    rewritten = next((name for name in written[1] if written[1][name] != written[-1].get(name)), None)
    same = torch.allclose(answers[1], answers[-1], rtol=ANSWERS, atol=ANSWERS, equal_nan=True)
    return rewritten or (None if same else "its later answers")


def check_state(model: nn.Module, input_shape: tuple[int, ...], name: str = "") -> None:
    """Raise UserError, with the model's name, if it cannot be trained privately.

    A pass changes its state, which would be released without noise, or fails for some values, or a parameter is complex.
    """
    name = name or type(model).__name__
    trained = ((key, value) for key, value in model.named_parameters() if value.requires_grad)
    if odd := next((key for key, value in trained if value.is_complex()), None):
        raise UserError(
            f"the parameter '{odd}' of '{name}' is complex, and clipping and noise are of real numbers, so it cannot be trained"
            " privately: hold its real and imaginary parts as two parameters"
        )
    try:
        changing = changing_state(model, input_shape)
    except Exception as error:  # models raise any error for an index out of range
        raise UserError(
            f"a pass of '{name}' fails for some values of a record ({first_line(error)}), which would end its training, so it"
            " cannot be trained privately: bound what it takes as an index or as an argument"
        ) from None
    if changing:
        raise UserError(
            f"a pass of '{name}' changes '{changing}', which noise does not protect, so it cannot be"
            " trained privately: choose a model without running statistics, moving averages or codebooks"
        )


Number = int | float | str


def _state(model: nn.Module) -> dict[str, Tensor | Number]:
    """Copy all tensors, numbers and texts of a model's modules: parameters, buffers, and attributes, with what these hold.

    Attributes are those of a module, of its class, and of objects in them; collections are followed.
    """
    found: dict[str, Tensor | Number] = {}
    seen = {id(module) for module in model.modules()}

    def add(name: str, value: object) -> None:
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            value = torch.from_numpy(value.copy())
        if isinstance(value, Tensor):
            found[name] = value.detach().clone()
        elif isinstance(value, Number):
            found[name] = value
        elif isinstance(value, set | frozenset):
            found[name] = repr(sorted(map(repr, value)))
        elif id(value) in seen or isinstance(value, type | ModuleType):
            return
        elif isinstance(value, Mapping):
            for key, part in value.items():
                add(f"{name}.{key}", part)
        elif isinstance(value, list | tuple | deque):
            for index, part in enumerate(value):
                add(f"{name}.{index}", part)
        elif hasattr(value, "__dict__"):
            seen.add(id(value))
            add(name, vars(value))
        elif value is not None:
            found[name] = repr(value.tolist() if isinstance(value, np.ndarray) else value)

    for path, module in model.named_modules():
        kinds = type(module).__mro__[: type(module).__mro__.index(nn.Module)]
        shared = {name: value for kind in reversed(kinds) for name, value in vars(kind).items()}
        for name, value in {**shared, **vars(module), **module._parameters, **module._buffers}.items():
            if name not in ("_parameters", "_buffers", "_modules") and not name.startswith("__"):
                add(f"{path}.{name}".removeprefix("."), value)
    return found


def _written(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Identify all parameters and buffers, and count how often each was written to."""
    return {name: (id(value), value._version) for name, value in (*model.named_parameters(), *model.named_buffers())}


def _shared_generators() -> tuple[object, str]:
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - the one that models draw from


def _equal(before: Tensor | Number, after: Tensor | Number | None) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.shape == after.shape and torch.equal(before.nan_to_num(), after.nan_to_num())
    return type(before) is type(after) and bool(before == after)


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
                f"model '{model}': img_size {pixels} is no multiple of the patch size, {side} pixels: {fits} fits"
            )


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


PREFIX = re.compile(r"^(_orig_mod\.|module\.|_module\.)+")
"""What torch.compile, data parallelism and Opacus put before the names of weights."""


def read_tensors(path: Path, where: str) -> dict[str, Tensor]:
    """Read a .safetensors or .pth file of weights. A pickle that contains anything else is refused, and none of its code is run."""
    if not path.is_file():
        raise UserError(f"{where}: {path}: no such file; expected weights as .safetensors or .pth")
    try:
        if path.suffix == ".safetensors":
            return {name.removeprefix("_orig_mod."): value for name, value in read_weights(path).items()}
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
    return {PREFIX.sub("", str(name)): value for name, value in content.items()}


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
