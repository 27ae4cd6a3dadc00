"""The state of torch training between two epochs: weights, the optimizer's moments and the loop's own state."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
"""Everything that the rest of training depends on, by name."""


def capture_state(model: nn.Module, optimizer: torch.optim.Optimizer, rest: Mapping[str, Tensor]) -> State:
    """Return weights and buffers, the optimizer's moments, and the rest.

    Generators of random layers are left out, because they are seeded anew in every epoch.
    """
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{index}.{name}": value for name, value in moments.items() if value is not None}
    return state | {f"rest.{name}": value for name, value in rest.items()}


def restore_state(state: State, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Restore model and optimizer from a state; return the rest of the state."""
    model.load_state_dict(_under(state, "model"))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in _under(state, "optimizer").items():
        index, _, moment = name.partition(".")
        moments.setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    return _under(state, "rest")


def _under(state: State, prefix: str) -> State:
    return {name.removeprefix(f"{prefix}."): value for name, value in state.items() if name.startswith(f"{prefix}.")}
