"""Grad-CAM (Selvaraju et al. 2017; equations 4 and 5 of the FADP paper), on CNNs and on the tokens of transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.explain.catalogue import explainer

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch


@explainer(
    "gradcam",
    multiplied=True,
    label="Grad-CAM",
    reads=lambda kind: kind.channels,
    reads_what="models of images with convolutions or transformer blocks",
)
def gradcam(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return ReLU(Σ_k α_k A_k), [B, 1, H, W], interpolated bilinearly to the inputs, where α_k is the mean of ∂f/∂A_k over positions.

    A is the output of a CNN's last convolution, or of the first norm in a transformer's last block, with tokens
    arranged as in the image. Raises UserError for a model that has neither, and for a model that does not take images.
    """
    import torch
    import torch.nn.functional as F

    from mia_audit.explain.quantity import QUANTITIES
    from mia_audit.models.channels import channels_of, forward_from

    channels = channels_of(batch.model, "explainer 'gradcam'")
    outputs, logits = forward_from(batch.model, channels.maps, batch.inputs)
    activations = channels.images(outputs.detach())
    maps = {}
    for quantity in batch.quantities:
        cotangent = QUANTITIES[quantity].gradient(logits.detach().double(), batch.classes).to(logits.dtype)
        (gradient,) = torch.autograd.grad(logits, outputs, cotangent, retain_graph=True)
        weights = channels.images(gradient).mean(dim=(2, 3), keepdim=True)
        heat = (weights * activations).sum(dim=1, keepdim=True).relu()
        maps[quantity] = F.interpolate(heat, size=tuple(batch.inputs.shape[2:]), mode="bilinear", align_corners=False)
    return maps
