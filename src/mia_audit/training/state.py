"""The state of a torch training between two epochs: weights, the optimizer's moments and random streams."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
"""All that the rest of a training depends on, by name."""


def capture_state(model: nn.Module, optimizer: torch.optim.Optimizer, rest: Mapping[str, Tensor]) -> State:
    """Return weights and buffers, the optimizer's moments, the state of the layers' random streams, and the rest."""
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{index}.{name}": value for name, value in moments.items() if value is not None}
    state |= {f"layers.{device}": value for device, value in _layer_streams(model).items()}
    return state | {f"rest.{name}": value for name, value in rest.items()}


def restore_state(state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Put a state back into model, optimizer and global generators; return its rest."""
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


def _layer_streams(model: nn.Module) -> State:
    """Return the states of the global generators, which dropout and similar layers draw from."""
    device = _device(model)
    gpu = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state()} | gpu


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
