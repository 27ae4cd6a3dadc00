"""Convolutions that cut images into patches, computed as matrix products."""

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class PatchesAsProducts(TorchFunctionMode):
    """A context in which a transformer's first layer is computed as a matrix product; on a CPU its backward pass takes a third of the time.

    Convolutions of single pixels are not changed, because as products they would need a transposed copy of the images.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        cut = func is F.conv2d and len(args) > 1 and max(args[1].shape[2:]) > 1
        return (patches if cut else func)(*args, **(kwargs or {}))


def patches(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Compute a convolution. If its strides equal the sides of its kernel, it is computed as a linear map of patches."""
    pieces = cut(images, weight, stride, padding, dilation, groups)
    if pieces is None:
        return F.conv2d(images, weight, bias, stride, padding, dilation, groups)
    return F.linear(pieces, weight.flatten(1), bias).permute(0, 3, 1, 2)


def cut(
    images: Tensor,
    weight: Tensor,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor | None:
    """Return the disjoint patches [n, rows, columns, C · h · w] that a convolution reads; None if the patches overlap."""
    high, wide = weight.shape[2:]
    whole = images.ndim == 4 and images.shape[2] % high == 0 and images.shape[3] % wide == 0
    apart = pair(stride) == (high, wide) and pair(dilation) == (1, 1) and groups == 1
    if not (whole and apart and padding not in ("same", "valid") and pair(padding) == (0, 0)):
        return None
    count, channels, height, width = images.shape
    pieces = images.reshape(count, channels, height // high, high, width // wide, wide).permute(0, 2, 4, 1, 3, 5)
    return pieces.flatten(3)


def pair(value: Any) -> tuple[Any, ...]:
    """Return an argument of a convolution as a pair, one value for each side."""
    return (value, value) if isinstance(value, int) else tuple(value)
