"""A fake GPU: torch sees `cuda` tensors, and mixing them with the CPU's is an error as on a real GPU.

Their numbers lie on the CPU, where everything is computed. Import this module before torch, with the path of the compiled
fake_gpu.cpp in the environment variable FAKE_GPU, and run the code under test in `on_the_gpu()`.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ctypes.CDLL(os.environ["FAKE_GPU"])

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

from mia_audit.models.passes import attention  # noqa: E402

aten = torch.ops.aten
BETWEEN = {aten._to_copy.default, aten.copy_.default}
"""Operations that copy from one device to the other."""
BY_ROWS = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""Operations that accept indices on the CPU."""
TOGETHER = {aten.cat.default, aten.stack.default}
"""Operations that do not accept even a scalar from another device."""
RESHAPED = {aten.unsqueeze_.default, aten.squeeze_.dim, aten.transpose_.default, aten.t_.default}


class GPUTensor(Tensor):
    """A tensor on the fake GPU; `inner` holds its numbers."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "GPUTensor":
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        tensor = Tensor._make_wrapper_subclass(cls, inner.shape, device="cuda:0", **layout)
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """Creates tensors on the fake GPU where they are asked for there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Replaces fused attention, which needs a real GPU, by plain products, and checks that generators are on their device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        source = options.get("generator")
        if isinstance(source, Generator) and source.kind != torch.device(options.get("device") or "cpu").type:
            raise RuntimeError(
                f"Expected a '{options.get('device')}' device type for generator but found {source.kind}"
            )
        return (attention if func is F.scaled_dot_product_attention else func)(*args, **options)


class Generator(torch.Generator):
    """A generator on either device."""

    kind = "cpu"

    def __new__(cls, device: Any = "cpu") -> "Generator":
        generator = super().__new__(cls)
        generator.kind = torch.device(device).type
        return generator


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute on the CPU what a GPU would compute from the same arguments; RuntimeError where it would refuse them."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    on_gpu = [value for value in tensors if isinstance(value, GPUTensor)]
    on_cpu = [value for value in tensors if not isinstance(value, GPUTensor)]
    if on_gpu and on_cpu and func not in BETWEEN:
        rows = func in BY_ROWS and isinstance(args[0], GPUTensor)
        single = all(value.dim() == 0 for value in on_cpu) and func not in TOGETHER | BY_ROWS
        if not (rows or single):
            raise RuntimeError(f"{func}: tensors on cuda:0 and on the CPU: {[tuple(value.shape) for value in tensors]}")
    wanted = kwargs.get("device")
    on_device = bool(on_gpu) if wanted is None else torch.device(wanted).type == "cuda"
    plain, options = tree_map(lambda value: value.inner if isinstance(value, GPUTensor) else value, (args, kwargs))
    result = func(*plain, **(options if wanted is None else options | {"device": "cpu", "pin_memory": False}))
    if func in RESHAPED and on_gpu:
        with torch._C._DisableTorchDispatch():
            func(*args, **kwargs)
    if any(value.alias_info is not None and value.alias_info.is_write for value in func._schema.returns):
        same = {id(value.inner): value for value in on_gpu}
        return tree_map(lambda value: same.get(id(value), value), result)
    if not on_device:
        return result
    return tree_map(lambda value: GPUTensor(value) if isinstance(value, Tensor) else value, result)


@contextmanager
def on_the_gpu() -> Iterator[None]:
    """Run with the fake GPU, `cuda`, within this context."""
    with Device(), Functions():
        yield


def _states(device: Any = None) -> Tensor:
    return torch.zeros(16, dtype=torch.uint8)


def _set_state(state: Tensor, device: Any = None) -> None:
    if isinstance(state, GPUTensor) or state.dtype != torch.uint8:
        raise TypeError("RNG state must be a torch.ByteTensor")


FREE = {"bytes": 2**36}
"""Free memory of the fake GPU."""

torch.Generator = Generator  # type: ignore[misc]
torch.__future__.set_overwrite_module_params_on_conversion(True)
torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor creates its tensor on the CPU and then copies it
for name, replacement in {
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
    setattr(torch.cuda, name, replacement)
Tensor.pin_memory = lambda self, device=None: self  # type: ignore[method-assign, misc]
