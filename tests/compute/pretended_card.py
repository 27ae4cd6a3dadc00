"""A card that there is not: torch takes its tensors for a card's, and whoever mixes them with the CPU's is told, as there.

Their numbers lie on the CPU, where everything is computed. Import it before torch, with the library of pretended_card.cpp
in PRETENDED_CARD, and run what is to be tried in `on_the_card()`.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ctypes.CDLL(os.environ["PRETENDED_CARD"])

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

from mia_audit.training.batchable import attention  # noqa: E402

aten = torch.ops.aten
BETWEEN = {aten._to_copy.default, aten.copy_.default}
"""What brings numbers from one device to the other."""
BY_ROWS = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""What takes rows that are told on the CPU."""
TOGETHER = {aten.cat.default, aten.stack.default}
"""What takes not even a single number from another device."""
RESHAPED = {aten.unsqueeze_.default, aten.squeeze_.dim, aten.transpose_.default, aten.t_.default}


class OnCard(Tensor):
    """A tensor of the card; `inner` has its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnCard":
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        made = Tensor._make_wrapper_subclass(cls, inner.shape, device="cuda:0", **layout)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """Makes what is asked for on the card there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Fused attention, of which a CPU has none for a card, in plain products; and generators have to be of their device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        source = options.get("generator")
        if isinstance(source, Generator) and source.kind != torch.device(options.get("device") or "cpu").type:
            raise RuntimeError(
                f"Expected a '{options.get('device')}' device type for generator but found {source.kind}"
            )
        return (attention if func is F.scaled_dot_product_attention else func)(*args, **options)


class Generator(torch.Generator):
    """A generator of either device."""

    kind = "cpu"

    def __new__(cls, device: Any = "cpu") -> "Generator":
        made = super().__new__(cls)
        made.kind = torch.device(device).type
        return made


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute on the CPU what a card would compute of the same arguments; RuntimeError where it would refuse them."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    cards = [value for value in tensors if isinstance(value, OnCard)]
    others = [value for value in tensors if not isinstance(value, OnCard)]
    if cards and others and func not in BETWEEN:
        rows = func in BY_ROWS and isinstance(args[0], OnCard)
        single = all(value.dim() == 0 for value in others) and func not in TOGETHER | BY_ROWS
        if not (rows or single):
            raise RuntimeError(f"{func}: tensors on cuda:0 and on the CPU: {[tuple(value.shape) for value in tensors]}")
    wanted = kwargs.get("device")
    there = bool(cards) if wanted is None else torch.device(wanted).type == "cuda"
    plain, options = tree_map(lambda value: value.inner if isinstance(value, OnCard) else value, (args, kwargs))
    found = func(*plain, **(options if wanted is None else options | {"device": "cpu", "pin_memory": False}))
    if func in RESHAPED and cards:
        with torch._C._DisableTorchDispatch():
            func(*args, **kwargs)
    if any(result.alias_info is not None and result.alias_info.is_write for result in func._schema.returns):
        same = {id(value.inner): value for value in cards}
        return tree_map(lambda value: same.get(id(value), value), found)
    return tree_map(lambda value: OnCard(value) if isinstance(value, Tensor) else value, found) if there else found


@contextmanager
def on_the_card() -> Iterator[None]:
    """Within this context there is a card, `cuda`."""
    with Device(), Functions():
        yield


def _states(device: Any = None) -> Tensor:
    return torch.zeros(16, dtype=torch.uint8)


def _set_state(state: Tensor, device: Any = None) -> None:
    if isinstance(state, OnCard) or state.dtype != torch.uint8:
        raise TypeError("RNG state must be a torch.ByteTensor")


FREE = {"bytes": 2**36}
"""Memory of the card."""

torch.Generator = Generator  # type: ignore[misc]
torch.__future__.set_overwrite_module_params_on_conversion(True)
torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor makes its tensor on the CPU, and then brings it over
for name, stands_in in {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_bf16_supported": lambda *_, **__: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "mem_get_info": lambda *_: (FREE["bytes"], FREE["bytes"]),
    "empty_cache": lambda: None,
    "synchronize": lambda *_: None,
    "manual_seed_all": lambda seed: None,
    "get_rng_state": _states,
    "set_rng_state": _set_state,
}.items():
    setattr(torch.cuda, name, stands_in)
Tensor.pin_memory = lambda self, device=None: self  # type: ignore[method-assign, misc]
