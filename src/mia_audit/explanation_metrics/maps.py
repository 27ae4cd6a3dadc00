"""Convert attributions to maps: one number per pixel or column, at the resolution of the model's input."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def at_inputs(attributions: Float[Tensor, "n ..."], shape: tuple[int, ...]) -> Float[Tensor, "n ..."]:
    """Convert attributions of another shape to the shape of the inputs.

    Attributions of a layer, [n, c, h, w], or of several maps side by side are summed over channels, interpolated
    bilinearly to the size of the input, and divided equally among its channels. If a table's record has several rows of
    attributions, [n, t, d], the rows are summed. Raises ValueError for attributions that do not correspond to positions
    of the input.
    """
    if attributions.shape[1:] == shape:
        return attributions
    if len(shape) == 1 and attributions.ndim == 3 and attributions.shape[2:] == shape:
        return attributions.sum(dim=1)
    if len(shape) == 3 and attributions.ndim == 4:
        summed = attributions.sum(dim=1, keepdim=True)
        enlarged = F.interpolate(summed, size=shape[1:], mode="bilinear", align_corners=False)
        return enlarged.expand(-1, shape[0], -1, -1) / shape[0]
    raise ValueError(f"attributions of shape {list(attributions.shape[1:])} for inputs of shape {list(shape)}")


def to_maps(attributions: Float[Tensor, "n ..."]) -> Float[np.ndarray, "n ..."]:
    """Return attributions summed over channels: [n, H, W] for images, [n, d] for tables, float64."""
    values = attributions.double()
    return (values.sum(dim=1) if values.ndim == 4 else values).cpu().numpy()
