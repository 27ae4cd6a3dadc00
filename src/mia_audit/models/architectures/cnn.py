"""A network of two convolutions and one hidden layer without normalisation, the baseline of Harder et al. (2020)."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mia_audit.errors import UserError, suggest
from mia_audit.models.catalogue import Parameters, architectures
from mia_audit.models.images import channels_and_size, image_size, input_shape

DEFAULTS = {"first": 20, "second": 50, "hidden": 500, "kernel": 5}
OPTIONAL = ("padding", "img_size")


class CNN(nn.Sequential):
    """Two blocks of convolution, ReLU and 2 × 2 max-pooling, then a hidden layer and a linear head: [B, C, H, W] to [B, classes]."""

    def __init__(
        self, channels: int, flat: int, classes: int, first: int, second: int, hidden: int, kernel: int, padding: int
    ) -> None:
        super().__init__(
            *[nn.Conv2d(channels, first, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2)],
            *[nn.Conv2d(first, second, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2)],
            *[nn.Flatten(), nn.Linear(second * flat, hidden), nn.ReLU(), nn.Linear(hidden, classes)],
        )


class CNNFamily:
    """`cnn`: parameters first and second (channels), hidden (units), kernel and padding (pixels on every side).

    The defaults are the paper's layers: 5 × 5, 20 and 50 channels, 500 units, no padding. If unpadded convolutions
    would leave nothing of an image, as of the 8 × 8 digits, the default is padding that keeps the image's size (2
    pixels for a 5 × 5 kernel).
    """

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        known = [*DEFAULTS, *OPTIONAL]
        for name, value in parameters.items():
            if name not in known:
                raise UserError(f"model 'cnn' has no parameter '{name}': {suggest(name, known)}")
            least = 0 if name == "padding" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(f"parameters.{name}: a whole number of at least {least} was expected, not {value!r}")
        channels, size = channels_and_size(model, shape)
        pixels = image_size(parameters, size)
        sides = (pixels, pixels) if isinstance(pixels, int) else tuple(pixels)
        given: dict[str, Any] = {**DEFAULTS, **{name: parameters[name] for name in DEFAULTS if name in parameters}}
        padding = parameters.get("padding")
        if padding is None:
            padding = 0 if min(left(side, given["kernel"], 0) for side in sides) > 0 else given["kernel"] // 2
        over = [left(side, given["kernel"], int(padding)) for side in sides]
        if min(over) < 1:
            raise UserError(
                f"model 'cnn': an image of {sides[0]} × {sides[1]} pixels is too small for two convolutions of {given['kernel']} × "
                f"{given['kernel']} with padding {padding}, each followed by pooling: raise img_size or padding, or lower kernel"
            )
        return {
            **given,
            "padding": padding,
            "img_size": pixels,
            "in_chans": channels,
            "flat": over[0] * over[1],
            "classes": classes,
        }

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        own = {name: value for name, value in arguments.items() if name not in ("img_size", "in_chans")}
        return CNN(channels=arguments["in_chans"], **own)

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return input_shape(arguments)


def left(side: int, kernel: int, padding: int) -> int:
    """Return a side's length in pixels after two unit-stride convolutions, each followed by pooling to half."""
    for _ in range(2):
        side = max(side + 2 * padding - kernel + 1, 0) // 2
    return side


architectures.register("cnn")(CNNFamily())
