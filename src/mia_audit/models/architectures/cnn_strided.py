"""The small network M_b of Harder et al. (2020), Figure 8: two strided convolutions and a hidden layer of 32 units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.errors import UserError
from mia_audit.models.catalogue import architecture
from mia_audit.models.images import channels_and_size

if TYPE_CHECKING:
    from torch import nn

LEAST = 14
"""Smallest side in pixels for which the last layer has an output."""


@architecture("cnn-strided")
def cnn_strided(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build two convolutions of stride 2, with 16 filters of 8 × 8 and 32 filters of 4 × 4, then 32 units.

    Each convolution is followed by ReLU and 2 × 2 max-pooling of stride 1.

    The network maps [B, C, H, W] to [B, classes] and has 26,010 parameters for 28 × 28 grey pixels and 10 classes.
    Raises UserError for tables, and for images with fewer than 14 pixels on a side.
    """
    from torch import nn

    channels, sides = channels_and_size("cnn-strided", shape)
    if min(sides) < LEAST:
        raise UserError(
            f"model 'cnn-strided': an image of {sides[0]} × {sides[1]} pixels is too small; expected at least {LEAST} on each side: choose cnn"
        )
    height, width = ((side // 2 - 5) // 2 for side in sides)
    return nn.Sequential(
        *[nn.Conv2d(channels, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, stride=1)],
        *[nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1)],
        *[nn.Flatten(), nn.Linear(32 * height * width, 32), nn.ReLU(), nn.Linear(32, classes)],
    )
