"""Attributions as short vectors, over their L1 norm, so that float16 keeps three digits whatever the scale. Nothing here imports torch.

Attributions of at most `vectors` coordinates are kept as they are. Longer ones are pooled, and `projections` numbers of a
random projection follow. Pooled are the sum, and the sum of absolute values, of every channel in every cell of a square
grid on the image, or of consecutive coordinates of any other record. A cell on the image consists of whole patches of a
model that reads patches. The projection is keyed by the audit's seed, so that models and explainers share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isqrt, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Float


def pooling(shape: Sequence[int], size: int, patch: Sequence[int] = (1, 1)) -> tuple[Float[np.ndarray, "n m"], ...]:
    """Return the matrices that sum attributions of this shape over cells: for an image's rows and columns, or for all coordinates.

    There are none if the attributions have at most `size` coordinates. `patch` has the rows and columns of a patch.
    """
    if prod(shape) <= size:
        return ()
    side = isqrt(size // (2 * shape[0])) if len(shape) == 3 else 0
    if not side:
        return (_cells(prod(shape), max(size // 2, 1)),)
    return tuple(_cells(length, side, pixels) for length, pixels in zip(shape[1:], patch, strict=True))


def _cells(length: int, count: int, together: int = 1) -> Float[np.ndarray, "n m"]:
    """Return a matrix [length, cells] that sums consecutive coordinates in at most `count` cells of nearly equal size.

    So many coordinates `together` are in one cell.
    """
    groups = -(-length // together)
    count = min(count, groups)
    return np.asarray(np.eye(count, dtype=np.float32)[np.arange(length) // together * count // groups])


@lru_cache(maxsize=2)
def projection(coordinates: int, count: int, seed: int) -> Float[np.ndarray, "d p"]:
    """Return a matrix of standard normal numbers that projects attributions, float32."""
    drawn = generator(seed, "projection of attributions", coordinates, count)
    return np.asarray(drawn.standard_normal((coordinates, count), dtype=np.float32))


def numbers(shape: Sequence[int], options: Mapping[str, Any]) -> int:
    """Return the length of the vector of attributions of this shape, at most: a model of few patches has fewer cells."""
    matrices = pooling(shape, options["vectors"])
    if not matrices:
        return prod(shape)
    channels = shape[0] if len(matrices) == 2 else 1
    cells: int = prod(matrix.shape[1] for matrix in matrices)
    return 2 * channels * cells + int(options["projections"])


def vectors(
    attributions: Float[np.ndarray, "n ..."], options: Mapping[str, Any], seed: int
) -> Float[np.ndarray, "n m"]:
    """Return every record's vector over the L1 norm of its attributions, float16, as `explain.batch.vectors` does on a device."""
    flat = values = attributions.reshape(len(attributions), -1).astype(np.float64)
    norm = np.abs(values).sum(axis=1, keepdims=True)
    matrices = pooling(attributions.shape[1:], options["vectors"])
    if matrices:
        both = np.stack([attributions, np.abs(attributions)], axis=1)
        rows, *columns = matrices
        both = rows.T @ both @ columns[0] if columns else both.reshape(len(values), 2, -1) @ rows
        projected = flat @ projection(flat.shape[1], options["projections"], seed)
        values = np.concatenate([both.reshape(len(values), -1), projected], axis=1, dtype=np.float64)
    return np.asarray((values / np.maximum(norm, np.finfo(np.float64).tiny)).astype(np.float16))
