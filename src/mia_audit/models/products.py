"""Attention, and convolutions that cut images into patches, computed as plain matrix products."""

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention as plain matrix products; rarer variants use torch's own unfused implementation."""
    boolean = attn_mask is not None and not attn_mask.is_floating_point()
    if dropout_p or is_causal or enable_gqa or boolean:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
    weights = (query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)) @ key.transpose(-2, -1)
    if attn_mask is not None:
        weights = weights + attn_mask
    return weights.softmax(dim=-1) @ value


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
