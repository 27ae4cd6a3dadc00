"""Small pictures inside the page: records at their native resolution and maps of attributions, as PNG data URIs."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

SIDE = 128
"""Least side of a picture in pixels: small ones are enlarged without smoothing, as the model sees them."""
FINEST = 64
"""A map of attributions is averaged down to about so many cells a side."""
NEGATIVE, ZERO, POSITIVE = (np.array(colour, dtype=float) for colour in ((0, 114, 178), (247, 247, 247), (213, 94, 0)))


def record_picture(record: UInt8[np.ndarray, "C H W"]) -> str:
    """Show an image record: three channels as colours, otherwise their mean as grey."""
    channels = record if record.shape[0] == 3 else np.repeat(record.mean(axis=0, keepdims=True), 3, axis=0)
    return data_uri(channels.astype(np.uint8).transpose(1, 2, 0))


def attribution_picture(attribution: Float[np.ndarray, "C H W"], scale: float) -> str:
    """Show an attribution summed over channels; see `attribution_pixels`."""
    return data_uri(attribution_pixels(attribution, scale))


def attribution_pixels(attribution: Float[np.ndarray, "C H W"], scale: float) -> UInt8[np.ndarray, "h w 3"]:
    """Colour an attribution summed over channels: blue below 0, orange above, fully coloured at ± `scale`."""
    cells = _coarse(attribution.sum(axis=0)) / (scale or 1.0)
    weight = np.clip(np.abs(cells), 0, 1)[..., None]
    colours = np.where(cells[..., None] < 0, NEGATIVE, POSITIVE)
    return np.asarray((ZERO + (colours - ZERO) * weight).round().astype(np.uint8))


def attribution_scale(attributions: list[Float[np.ndarray, "C H W"]]) -> float:
    """Return the largest absolute value that any of these maps shows, so that they can be compared."""
    return max(float(np.abs(_coarse(attribution.sum(axis=0))).max()) for attribution in attributions)


def _coarse(values: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "h w"]:
    factor = max(1, -(-max(values.shape) // FINEST))
    height, width = (size - size % factor for size in values.shape)
    blocks = values[:height, :width].reshape(height // factor, factor, width // factor, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def data_uri(pixels: UInt8[np.ndarray, "H W 3"]) -> str:
    """Write pixels as a PNG inside a URI, each repeated until the picture is `SIDE` pixels wide."""
    factor = max(1, -(-SIDE // max(pixels.shape[:2])))
    enlarged = pixels.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = enlarged.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # a leading 0: rows are not filtered
    rows[:, 1:] = enlarged.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), _chunk(b"IEND", b"")]
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
