"""Cheaper passes of a frozen model for gradients by its inputs: operations with a slow backward pass on a CPU are replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from mia_audit.models.products import attention, patches

FEW_TOKENS = 32
"""Up to this number of tokens, attention as plain products is faster than torch's fused kernel, whose backward pass is slow."""


class FastPass(TorchFunctionMode):
    """A context in which a model's results are equal up to rounding and its gradients by the inputs take less time on a CPU.

    The convolution that cuts an image into patches becomes a matrix product, and so does attention over few tokens.
    GELU's derivative is computed once for all backward passes through the same graph. Convolutions of single pixels are
    not changed, because as products they would need a transposed copy of the images.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return REPLACED.get(func, func)(*args, **(kwargs or {}))


def _conv2d(images: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return (patches if max(weight.shape[2:]) > 1 else F.conv2d)(images, weight, *args, **kwargs)


def _attention(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    few = key.shape[-2] <= FEW_TOKENS and _replaceable(query)
    return (attention if few else F.scaled_dot_product_attention)(query, key, value, *args, **kwargs)


def _gelu(values: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "none" and values.requires_grad and torch.is_grad_enabled() and _replaceable(values):
        result: Tensor = _Gelu.apply(values)  # type: ignore[no-untyped-call]
        return result
    return F.gelu(values, approximate=approximate)


def _replaceable(tensor: Tensor) -> bool:
    """Whether a tensor is on the CPU and in full precision; autocast's kernels stay as they are."""
    return tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)


class _Gelu(torch.autograd.Function):
    """The exact GELU, which keeps its derivative instead of its input."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(torch.ops.aten.gelu_backward(torch.ones_like(values), values))
        return F.gelu(values)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        derivative: Tensor = ctx.saved_tensors[0]
        return gradient * derivative


REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    F.conv2d: _conv2d,
    F.scaled_dot_product_attention: _attention,
    F.gelu: _gelu,
}
