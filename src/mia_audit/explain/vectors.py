"""Attributions as short vectors, over their L1 norm, so that float16 keeps three digits whatever the scale. Nothing here imports torch.

Attributions of at most the given number of coordinates are kept as they are. Longer ones are pooled: the sum, and the
sum of absolute values, of every channel in every cell of a square grid on the image, or of consecutive coordinates of
any other record.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float


def pooling(shape: Sequence[int], size: int) -> tuple[Float[np.ndarray, "n m"], ...]:
    """Return the matrices that sum attributions of this shape over cells: for an image's rows and columns, or for all coordinates.

    There are none if the attributions have at most `size` coordinates.
    """
    if prod(shape) <= size:
        return ()
    side = isqrt(size // (2 * shape[0])) if len(shape) == 3 else 0
    return tuple(_cells(length, side) for length in shape[1:]) if side else (_cells(prod(shape), max(size // 2, 1)),)


def _cells(length: int, count: int) -> Float[np.ndarray, "n m"]:
    """Return a matrix [length, cells] that sums consecutive coordinates in at most `count` cells of nearly equal size."""
    count = min(count, length)
    cells: np.ndarray = np.eye(count, dtype=np.float32)[np.arange(length) * count // length]
    return cells


def numbers(shape: Sequence[int], size: int) -> int:
    """Return the length of the vector of attributions of this shape."""
    matrices = pooling(shape, size)
    if not matrices:
        return prod(shape)
    channels = shape[0] if len(matrices) == 2 else 1
    cells: int = prod(matrix.shape[1] for matrix in matrices)
    return 2 * channels * cells


def vectors(attributions: Float[np.ndarray, "n ..."], size: int) -> Float[np.ndarray, "n m"]:
    """Return every record's vector over the L1 norm of its attributions, float16, as `explain.batch.vectors` does on a device."""
    values = attributions.reshape(len(attributions), -1).astype(np.float64)
    norm = np.abs(values).sum(axis=1, keepdims=True)
    matrices = pooling(attributions.shape[1:], size)
    if matrices:
        both = np.stack([attributions, np.abs(attributions)], axis=1)
        rows, *columns = matrices
        both = rows.T @ both @ columns[0] if columns else both.reshape(len(values), 2, -1) @ rows
        values = both.reshape(len(values), -1).astype(np.float64)
    over: np.ndarray = (values / np.maximum(norm, np.finfo(np.float64).tiny)).astype(np.float16)
    return over
