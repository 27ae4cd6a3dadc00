"""Torch modules that a user's script trains. They are stored as weights and queried like the built-in ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.learners.answers import check_order, logits_of
from mia_audit.learners.naming import script_and_function, user_code
from mia_audit.learners.protocol import ExplanationRequest, Summaries
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.answers import check_tensor, unwrapped
from mia_audit.models.inputs import Inputs
from mia_audit.models.weights import WEIGHTS, load_weights
from mia_audit.registry import load_file
from mia_audit.runtime.device import device_for
from mia_audit.runtime.torchvision_guard import guard_imports
from mia_audit.training.task import Records

if TYPE_CHECKING:
    from mia_audit.learners.protocol import Compute


class LazyInputs:
    """Records as inputs of a module, prepared one slice at a time."""

    def __init__(self, values: np.ndarray, prepare: Callable[[np.ndarray], Tensor], device: str) -> None:
        self._values, self._prepare = values, prepare
        self.device = device

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        chosen = self._values[rows if isinstance(rows, slice) else rows.cpu().numpy()]
        return self._prepare(np.array(chosen)).to(self.device)


class ScriptModule(TorchModel):
    """A torch module of a script; its outputs are checked at the first query."""

    def __init__(self, module: nn.Module, batch: int, prepare: Callable[[Records], Any], script: Script) -> None:
        super().__init__(module, batch, prepare)
        self._where = script.where
        self._path = script.path
        self._checked = False

    def logits(self, records: Records) -> Float[np.ndarray, "n C"]:
        """Return the logits, computed batch by batch."""
        with user_code(self._where, self._path):
            if not self._checked:
                with torch.no_grad():
                    check_tensor(self.module(self.inputs(records)[0:2]), self._where)
            logits = logits_of(super().logits(records), "logits", records, 0, self._where)
            if not self._checked:
                check_order(super().logits, records, logits, self._where)
                self._checked = True
        return logits

    def summaries(self, records: Records, request: ExplanationRequest, outputs: bool) -> Summaries:
        """Return summaries of attributions and of outputs; exceptions of the module name its file."""
        with user_code(self._where, self._path):
            return super().summaries(records, request, outputs)


def script_module(script: Script, module: nn.Module, architecture: Mapping[str, Any], compute: Compute) -> ScriptModule:
    """Return a script's module as a model: in eval mode, on the device, with inputs from the script's function `inputs`, if any."""
    if architecture["outputs"] not in ("", "logits"):
        raise UserError(
            f"{script.where}: outputs: {architecture['outputs']}, but a torch module without predict must return"
            " logits: return the values before the softmax, or define predict(model, records)"
        )
    device = device_for(compute.threads, compute.device)
    own = script.has("inputs")

    def prepare(values: np.ndarray) -> Tensor:
        return cast(Tensor, script.call("inputs", values)) if own else inputs_of(values)

    def inputs(records: Records) -> Inputs:
        return cast(Inputs, LazyInputs(records.values, prepare, device))

    return ScriptModule(module.to(device), compute.micro_batch, inputs, script)


def inputs_of(values: np.ndarray) -> Tensor:
    """Return records as float32: tables as stored, pixels in [0, 1]."""
    tensor = torch.from_numpy(values)
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor.float()


def untrained_module(script: Script, architecture: Mapping[str, Any]) -> nn.Module:
    """Return the module that a script builds."""
    shape, classes = tuple(architecture["shape"]), architecture["classes"]
    module = script.call("build", shape, classes, **architecture["arguments"])
    if not isinstance(module, nn.Module):
        raise UserError(f"{script.where}: build returned a {type(module).__name__}; expected a torch module")
    return unwrapped(module)


def built_module(script: Script, architecture: Mapping[str, Any], folder: Path) -> nn.Module:
    """Return the module that a script builds, with the weights in a folder."""
    module = untrained_module(script, architecture)
    load_weights(module, folder / WEIGHTS)
    return module


class Script:
    """The functions of a user's file; their exceptions are reported as the user's errors, not as errors of mia-audit."""

    def __init__(self, model: str, where: str) -> None:
        self.path, self.training = script_and_function(model)
        self.where = f"{where}: {self.path}"
        folder = str(self.path.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)  # the file can then import modules beside it
        guard_imports()
        self.module: ModuleType = load_file(self.path, where)

    def has(self, name: str) -> bool:
        """Return whether the file defines a function."""
        return callable(getattr(self.module, name, None))

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call one of the file's functions; its exceptions become a UserError that names the line."""
        with user_code(f"{self.where}: {name}", self.path):
            return getattr(self.module, name)(*arguments, **named)
