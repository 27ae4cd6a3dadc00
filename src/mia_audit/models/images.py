"""Functions for all image models: channels and sizes of the input."""

from collections.abc import Mapping
from typing import Any

from mia_audit.errors import UserError
from mia_audit.models.catalogue import Parameters


def channels_and_size(model: str, shape: tuple[int, ...]) -> tuple[int, tuple[int, int]]:
    """Split a pool's shape [C, H, W]; UserError for a table."""
    if len(shape) != 3:
        raise UserError(
            f"model '{model}' takes images, not a table of {shape[0]} columns: choose a table model such as 'mlp'"
        )
    return shape[0], (shape[1], shape[2])


def image_size(parameters: Parameters, size: tuple[int, int]) -> int | list[int]:
    """Return the input's size: `img_size` of the parameters if given, else `size`, as one number if it is square."""
    asked = parameters.get("img_size")
    if asked is None:
        return size[0] if size[0] == size[1] else list(size)
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise UserError(f"parameters.img_size: a whole number of pixels was expected, not {asked!r}")
    return asked


def input_shape(arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """Return [C, H, W] from resolved arguments."""
    size = arguments["img_size"]
    height, width = (size, size) if isinstance(size, int) else size
    return (arguments["in_chans"], height, width)
