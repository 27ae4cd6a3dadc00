"""The channels that Grad-CAM reads: those of a CNN's last convolution, or of a transformer's last block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from mia_audit.errors import UserError

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
