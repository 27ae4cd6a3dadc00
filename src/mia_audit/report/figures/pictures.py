"""Records and attribution maps as pixels: blue for negative attributions, orange for positive ones."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from matplotlib.axes import Axes

FINEST = 64
"""Largest number of cells along a side of an attribution map; finer maps are averaged."""
NEGATIVE, ZERO, POSITIVE = (np.array(colour, dtype=float) for colour in ((0, 114, 178), (247, 247, 247), (213, 94, 0)))


def record_picture(record: UInt8[np.ndarray, "C H W"]) -> str:
    """Return an image record as a data URI: in colour with three channels, otherwise their mean in grey."""
    pixels = displayed(record)
    return data_uri((pixels if pixels.ndim == 3 else np.stack([pixels] * 3, axis=2)).astype(np.uint8))


def displayed(record: np.ndarray) -> np.ndarray:
    """Return an image record [C, H, W] as [H, W, 3] in colour, or the mean over its channels [H, W] in grey."""
    return record.transpose(1, 2, 0) if record.shape[0] == 3 else record.mean(axis=0)


def attribution_picture(attribution: Float[np.ndarray, "C H W"], scale: float) -> str:
    """Return an attribution summed over channels as a data URI; see `attribution_pixels`."""
    return data_uri(attribution_pixels(attribution, scale))


def attribution_pixels(attribution: Float[np.ndarray, "C H W"], scale: float) -> UInt8[np.ndarray, "h w 3"]:
    """Colour an attribution summed over channels: blue below 0, orange above, saturated at ± `scale`."""
    cells = _coarse(attribution.sum(axis=0)) / (scale or 1.0)
    return blend(np.broadcast_to(ZERO, (*cells.shape, 3)), cells, np.clip(np.abs(cells), 0, 1))


def blend(
    background: Float[np.ndarray, "h w 3"], values: Float[np.ndarray, "h w"], weight: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Blend a background with the colours of the values' signs, by weights between 0 and 1."""
    colours = np.where(values[..., None] < 0, NEGATIVE, POSITIVE)
    return np.asarray((background + (colours - background) * weight[..., None]).round().astype(np.uint8))


def attribution_scale(attributions: list[Float[np.ndarray, "C H W"]]) -> float:
    """Return the largest absolute value that any of these maps shows, as a common scale."""
    return max(float(np.abs(_coarse(attribution.sum(axis=0))).max()) for attribution in attributions)


def _coarse(values: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "h w"]:
    factor = max(1, -(-max(values.shape) // FINEST))
    height, width = (size - size % factor for size in values.shape)
    blocks = values[:height, :width].reshape(height // factor, factor, width // factor, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def data_uri(pixels: UInt8[np.ndarray, "H W 3"]) -> str:
    """Return pixels as a data URI of a PNG, which the page enlarges without smoothing."""
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "png", optimize=True)
    return png_uri(written.getvalue())


def png_uri(content: bytes) -> str:
    """Return the content of a PNG file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode()


def draw_explained(cells: Sequence[Axes], image: UInt8[np.ndarray, "C H W"], explanations: Sequence[Any]) -> None:
    """Draw an image in the first cell, and its explanations in the others, each on its own scale."""
    cells[0].imshow(image.transpose(1, 2, 0).squeeze(), cmap="gray")
    for axes, values in zip(cells[1:], explanations, strict=True):
        explanation = np.asarray(values, dtype=float).reshape(image.shape)
        axes.imshow(attribution_pixels(explanation, attribution_scale([explanation])))
    for axes in cells:
        axes.set_axis_off()


def signed_colours() -> Any:
    """Return the colour map from blue over white to orange."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", [colour / 255 for colour in (NEGATIVE, ZERO, POSITIVE)])


def draw_cell(axes: Axes, values: np.ndarray, shape: tuple[int, ...], scale: float | None, aspect: Any = None) -> None:
    """Draw a record (no scale) or a signed map (saturated at ± scale) in a framed cell; rows of tables are strips of columns."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(visible=True, linewidth=0.3, color="0.7")
    pixels = np.asarray(values, dtype=np.float64).reshape(shape if len(shape) == 3 else (1, 1, -1))
    aspect = aspect or ("equal" if len(shape) == 3 else "auto")
    if scale is None:
        shown = displayed(pixels)
        axes.imshow(shown / 255 if shown.ndim == 3 else shown, cmap="gray", aspect=aspect)
    else:
        axes.imshow(pixels.sum(axis=0), cmap=signed_colours(), vmin=-scale or -1, vmax=scale or 1, aspect=aspect)
