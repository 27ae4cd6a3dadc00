"""What is kept of a training that may be killed: the last epoch and the finished models, until the job is whole."""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models import save_weights
from mia_audit.models.weights import digest_of
from mia_audit.storage import read_table, replacing, sha256, table_facts, write_table

State = dict[str, Tensor]
"""Everything that the rest of a training depends on, by name."""


def identity(**parts: Any) -> str:
    """Return the SHA-256 of what a training depends on: a checkpoint is only ever used under the identity it was kept under."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Checkpoint:
    """One model's training in a folder of its own: the state after its last kept epoch, and the finished model.

    States are written no more often than every `seconds`, whole or not at all, with their digest. One that is damaged
    or belongs to another identity counts for nothing: the training then starts afresh and ends in the same bytes.
    Without a folder nothing is kept. A worker that outlived its orchestrator may train the same model meanwhile: it
    writes the same bytes, and when it is done it clears the folder away.
    """

    def __init__(self, folder: Path | None = None, key: str = "", seconds: float = 0.0) -> None:
        self.folder = folder
        self.key = key
        self.seconds = seconds
        self._written = time.monotonic()

    def resume(self) -> State:
        """Return the state after the last kept epoch; empty where there is none to go on from."""
        path = self._file("epoch.safetensors")
        if path is None or not path.exists():
            return {}
        try:
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            return self._damaged(path, str(error))
        if facts.get("key") != self.key:
            return {}
        if facts.get("digest") != digest_of(state):
            return self._damaged(path, "its digest is another one")
        print(f"{path}: training goes on from this checkpoint", file=sys.stderr, flush=True)
        return state

    def offer(self, capture: Callable[[], State]) -> None:
        """Keep the state, unless the last one was kept just now."""
        path = self._file("epoch.safetensors")
        if path is None or time.monotonic() - self._written < self.seconds:
            return
        state = {name: value.detach().cpu().contiguous().clone() for name, value in capture().items()}
        with _unless_cleared_away(), replacing(path) as partial:
            save_file(state, partial, {"key": self.key, "digest": digest_of(state)})
        self._written = time.monotonic()

    def finish(self, model: nn.Module, table: pa.Table, masks: Path | None = None) -> None:
        """Keep a trained model, its table and the masks of its noise, if any; its epochs are no longer needed."""
        if self.folder is not None:
            with _unless_cleared_away():
                self._keep(self.folder, model, table, masks)

    def _keep(self, folder: Path, model: nn.Module, table: pa.Table, masks: Path | None) -> None:
        weights = folder / "weights.safetensors"
        save_weights(model, weights)
        facts = {"key": self.key, "weights": sha256(weights)}
        if masks is not None:
            with replacing(folder / "masks.safetensors") as partial:
                shutil.copyfile(masks, partial)
            facts["masks"] = sha256(masks)
        write_table(folder / "training.parquet", table, "training", len(table), facts)
        (folder / "epoch.safetensors").unlink(missing_ok=True)

    def finished(self, weights: Path, masks: Path) -> pa.Table | None:
        """Copy a trained model's weights, and its masks if any, where an earlier run finished it; return its table."""
        path = self._file("training.parquet")
        if path is None or not path.exists():
            return None
        try:
            facts = table_facts(path, "training")
            if facts.get("key") != self.key:
                return None
            table = read_table(path, "training")
            copies = {"weights": weights} | ({"masks": masks} if "masks" in facts else {})
            for name, copy in copies.items():
                shutil.copyfile(path.with_name(f"{name}.safetensors"), copy)
                if sha256(copy) != facts.get(name):
                    raise UserError(f"its {name} are other ones")
        except (UserError, OSError) as error:
            self._damaged(path, str(error))
            return None
        return table

    def _file(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def _damaged(self, path: Path, why: str) -> State:
        print(f"warning: {path}: a damaged checkpoint ({why}) is set aside; training starts afresh", file=sys.stderr)
        return {}


@contextmanager
def _unless_cleared_away() -> Iterator[None]:
    """Go on without a checkpoint that cannot be kept, because another worker is clearing the folder away."""
    try:
        yield
    except FileNotFoundError:
        pass
    except SafetensorError as error:
        if "No such file" not in str(error):
            raise


def captured(model: nn.Module, optimizer: torch.optim.Optimizer, rest: Mapping[str, Tensor]) -> State:
    """Return a state: weights and buffers, the optimizer's moments, the layers' random numbers, and the rest."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{index}.{name}": value for name, value in moments.items() if value is not None}
    state |= {f"layers.{device}": value for device, value in _layers_random(model).items()}
    return state | {f"rest.{name}": value for name, value in rest.items()}


def restore(state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Put a state back in place and return its rest."""
    model.load_state_dict(_under(state, "model"))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in _under(state, "optimizer").items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    for device, value in _under(state, "layers").items():
        if device == "cpu":
            torch.set_rng_state(value)
        else:
            torch.cuda.set_rng_state(value, _device(model))
    return _under(state, "rest")


def _under(state: State, prefix: str) -> State:
    return {name.removeprefix(f"{prefix}."): value for name, value in state.items() if name.startswith(f"{prefix}.")}


def _layers_random(model: nn.Module) -> State:
    """The global generators, which dropout and its like draw from."""
    device = _device(model)
    own = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state()} | own


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
