"""Convolutions that cut images into patches, as the products that they are."""

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class PatchesAsProducts(TorchFunctionMode):
    """Within this context a transformer's first layer is a product: on a CPU its way back takes a third of the time.

    Convolutions of single pixels, which are products too, stay: their images would have to be turned around.
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
    """A convolution; where its strides are its kernel's sides, a linear map of patches."""
    high, wide = weight.shape[2:]
    whole = images.ndim == 4 and images.shape[2] % high == 0 and images.shape[3] % wide == 0
    apart = _pair(stride) == (high, wide) and _pair(dilation) == (1, 1) and groups == 1
    if not (whole and apart and padding not in ("same", "valid") and _pair(padding) == (0, 0)):
        return F.conv2d(images, weight, bias, stride, padding, dilation, groups)
    count, channels, height, width = images.shape
    cut = images.reshape(count, channels, height // high, high, width // wide, wide).permute(0, 2, 4, 1, 3, 5)
    return F.linear(cut.flatten(3), weight.flatten(1), bias).permute(0, 3, 1, 2)


def _pair(value: Any) -> tuple[Any, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)
