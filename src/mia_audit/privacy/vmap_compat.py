"""Equivalent replacements for operations that vmap batches badly."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mia_audit.models.products import attention, patches


class Batchable(TorchFunctionMode):
    """A context that replaces fused attention, and convolutions that cut images into patches, by plain matrix products.

    vmap has no rule for the fused attention kernels: it loops over records and warns at every call. For per-record
    gradients of a convolution it uses a grouped convolution, which is several times slower than a matrix product of
    patches. Layer normalisation is computed in float32, whatever the precision of the pass. If a record is passed
    `alone`, torch's group norm misreads the memory layout of an image and raises an error, so it receives a copy in the
    usual layout.
    """

    def __init__(self, alone: bool = False) -> None:
        super().__init__()
        self._replacements = REPLACEMENTS | ({F.group_norm: copied_group_norm} if alone else {})

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._replacements.get(func, func)(*args, **(kwargs or {}))


def copied_group_norm(
    images: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Group normalisation of a copy of the images in torch's usual memory layout."""
    return F.group_norm(images.clone(memory_format=torch.contiguous_format), groups, weight, bias, eps)


def float32_layer_norm(
    inputs: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer normalisation in float32. Under vmap, torch's own fails because it mixes bfloat16 gradients with float32 weights."""
    return F.layer_norm(inputs.float(), shape, weight, bias, eps)


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.scaled_dot_product_attention: attention,
    F.conv2d: patches,
    F.layer_norm: float32_layer_norm,
}
