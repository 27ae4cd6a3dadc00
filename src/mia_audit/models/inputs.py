"""From records as they are stored to tensors as a model takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def to_input(
    records: np.ndarray, facts: Mapping[str, Any], input_shape: Sequence[int] | None = None, device: str = "cpu"
) -> Tensor:
    """Return float32 [B, …] on the device: images (uint8 [B, C, H, W]) standardised, and resized to `input_shape` if it differs.

    `facts` are those of records.parquet: kind (image | table), and for images mean and sd of pixels in [0, 1] (a number,
    or one per channel). Tables (float32 [B, d]) pass through.
    """
    values = torch.from_numpy(np.array(records)).to(device)  # a copy: a memory map is read-only
    if facts["kind"] == "table":
        return values.float()
    mean, sd = (
        torch.tensor(facts[key], dtype=torch.float32, device=device).reshape(-1, 1, 1) for key in ("mean", "sd")
    )
    images = (values.float() / 255 - mean) / sd
    if input_shape is not None and tuple(input_shape[1:]) != tuple(images.shape[2:]):
        images = F.interpolate(
            images, size=tuple(input_shape[1:]), mode="bilinear", antialias=True, align_corners=False
        )
    return images
