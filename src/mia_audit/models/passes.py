"""Cheaper passes of a frozen model for gradients by its inputs: operations with a slow backward pass on a CPU are replaced.

Attention, and convolutions that cut images into patches, computed as plain matrix products.

The channels that Grad-CAM reads: those of a CNN's last convolution, or of a transformer's last block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from mia_audit.errors import UserError


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
    pieces = cut(images, weight, stride, padding=padding, dilation=dilation, groups=groups)
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

WRITERS = ("attn.proj", "mlp.fc2")
"""The layers of a transformer's block that write the block's channels."""


@dataclass(frozen=True)
class Channels:
    """The location of a model's channels: the layer whose output has them, and the layers whose parameters write them.

    Heat maps are computed from the output of the layer `maps`. In a transformer this is the last block's first norm.
    After that block, a model that classifies by its class token no longer depends on the tokens of the image. `writers`
    are the names of modules of the model; the first dimension of their parameters is the channel. `grid` is the height
    and width of the grid of the image's tokens, `prefix` the number of tokens before these. If the output is already
    [B, C, h, w], `grid` is None and `prefix` is 0.
    """

    layer: nn.Module
    maps: nn.Module
    writers: dict[str, nn.Module]
    grid: tuple[int, int] | None = None
    prefix: int = 0

    def flat(self, values: Float[Tensor, "B ..."]) -> Float[Tensor, "B C L"]:
        """Return the values with channels first, then all positions."""
        return values.flatten(2) if self.grid is None else values.transpose(1, 2)

    def images(self, values: Float[Tensor, "B ..."]) -> Float[Tensor, "B C h w"]:
        """Return the values of the image's tokens, arranged on their grid."""
        if self.grid is None:
            return values
        tokens = values[:, self.prefix :].transpose(1, 2)
        return tokens.reshape(*tokens.shape[:2], *self.grid)


def find_channels(model: nn.Module) -> Channels | None:
    """Find a model's channels; None if it has neither a transformer's blocks nor a convolution."""
    blocks = getattr(model, "blocks", None)
    last = blocks[-1] if isinstance(blocks, nn.Sequential | nn.ModuleList) and len(blocks) else None
    if last is not None and isinstance(getattr(last, "norm1", None), nn.Module) and hasattr(model, "patch_embed"):
        writers = {
            f"blocks.{len(blocks) - 1}.{name}": layer  # type: ignore[arg-type]
            for name, layer in last.named_modules()
            if name in WRITERS
        }
        grid: tuple[int, int] = tuple(model.patch_embed.grid_size)  # type: ignore[assignment, union-attr, arg-type]
        prefix = int(getattr(model, "num_prefix_tokens", 0))  # type: ignore[arg-type]
        return Channels(last, last.norm1, writers, grid, prefix)  # type: ignore[arg-type]
    convolutions = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, _ConvNd)]
    if not convolutions:
        return None
    name, layer = convolutions[-1]
    return Channels(layer, layer, {name: layer})


def channels_of(model: nn.Module, who: str) -> Channels:
    """Find a model's channels. Raises UserError for a model without channels; the error names the explainer `who`, which reads them."""
    channels = find_channels(model)
    if channels is None:
        raise UserError(
            f"{who} reads the channels of a model's last convolution or transformer block, but this model has neither: choose a CNN"
            " such as 'mobilenet_groupnorm', or a vision transformer"
        )
    return channels


def forward_from(
    model: nn.Module, layer: nn.Module, inputs: Float[Tensor, "B ..."]
) -> tuple[Float[Tensor, "B ..."], Float[Tensor, "B C"]]:
    """Run the model, and return a layer's output as a leaf of the graph, and the logits computed from it.

    No gradients flow to parameters, or to the layers before this one.
    """
    seen: list[Tensor] = []

    def keep(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[-1].clone()  # a later activation may work in place, which autograd does not allow on a leaf

    handle = layer.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            logits = model(inputs)
    finally:
        handle.remove()
    return seen[-1], logits


def channel_weights(
    model: nn.Module, channels: Channels, inputs: Float[Tensor, "B ..."], classes: Int[Tensor, " B"]
) -> Float[Tensor, "B C"]:
    """Return Grad-CAM's weights, the mean over positions of ∂z/∂A for the class's logit z (Selvaraju et al. 2017, equation 1)."""
    outputs, logits = forward_from(model, channels.layer, inputs)
    (gradient,) = torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), outputs)
    return channels.flat(gradient).mean(dim=2)
