"""From attributions to the map that is looked at: one number per pixel or column, at the record's own resolution."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def at_inputs(attributions: Float[Tensor, "n ..."], shape: tuple[int, ...]) -> Float[Tensor, "n ..."]:
    """Bring attributions that have no number for every number of the input to the shape of the inputs.

    A layer's [n, c, h, w], or several maps side by side, are summed over channels, interpolated bilinearly to the size of
    the record, as an overlay shows them, and every channel of the input gets an equal part; several rows a record of a
    table, [n, t, d], are summed. Attributions that have no place in the record are a ValueError.
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
    """Sum attributions over channels: [n, H, W] of images, [n, d] of tables, float64."""
    values = attributions.double()
    return (values.sum(dim=1) if values.ndim == 4 else values).cpu().numpy()
