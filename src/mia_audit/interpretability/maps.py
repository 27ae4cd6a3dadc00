"""From attributions to the map that is looked at: one number per pixel or column, at the record's own resolution."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def at_inputs(attributions: Float[Tensor, "n ..."], shape: tuple[int, ...]) -> Float[Tensor, "n ..."]:
    """Bring attributions of a layer [n, c, h, w] to the shape of the inputs, others are returned as they are.

    A layer's channels are summed, the map is interpolated bilinearly, as an overlay on the record shows it, and every
    channel of the input gets an equal part of it. Attributions that have no place in the image are a ValueError.
    """
    if attributions.shape[1:] == shape:
        return attributions
    if attributions.ndim != 4 or len(shape) != 3:
        raise ValueError(f"attributions of shape {list(attributions.shape[1:])} for inputs of shape {list(shape)}")
    summed = attributions.sum(dim=1, keepdim=True)
    enlarged = F.interpolate(summed, size=shape[1:], mode="bilinear", align_corners=False)
    return enlarged.expand(-1, shape[0], -1, -1) / shape[0]


def to_maps(attributions: Float[Tensor, "n ..."]) -> Float[np.ndarray, "n ..."]:
    """Sum attributions over channels: [n, H, W] of images, [n, d] of tables, float64."""
    values = attributions.double()
    return (values.sum(dim=1) if values.ndim == 4 else values).cpu().numpy()
