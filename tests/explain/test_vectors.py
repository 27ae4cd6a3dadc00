"""Vectors of attributions against loops, on a device and in NumPy."""

import numpy as np
import pytest
import torch

from mia_audit.explain import batch
from mia_audit.explain.vectors import numbers, vectors


def by_loop(attributions: np.ndarray, size: int) -> np.ndarray:
    """The vectors times the norms, cell by cell."""
    shape = attributions.shape[1:]
    if np.prod(shape) <= size:
        return attributions.reshape(len(attributions), -1)
    if len(shape) == 3 and size >= 2 * shape[0]:
        side = int(np.sqrt(size / (2 * shape[0])))
        cells = [[range(-(-i * n // side), -(-(i + 1) * n // side)) for i in range(side)] for n in shape[1:]]
        parts = [attributions[:, c][:, r][:, :, s] for c in range(shape[0]) for r in cells[0] for s in cells[1]]
    else:
        flat, count = attributions.reshape(len(attributions), -1), size // 2
        n = flat.shape[1]
        parts = [flat[:, range(-(-i * n // count), -(-(i + 1) * n // count))] for i in range(count)]
    sums = [part.reshape(len(part), -1).sum(axis=1) for part in parts]
    sizes = [np.abs(part).reshape(len(part), -1).sum(axis=1) for part in parts]
    return np.stack(sums + sizes, axis=1)


@pytest.mark.parametrize(
    ("shape", "size", "length"),
    [((30,), 256, 30), ((1, 8, 8), 64, 64), ((3, 14, 17), 256, 216), ((100,), 16, 16), ((9, 4, 4), 16, 16)],
)
@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_vectors_are_the_attributions_or_their_sums_over_cells(
    shape: tuple[int, ...], size: int, length: int, scale: float
) -> None:
    attributions = scale * np.random.default_rng(0).standard_normal((5, *shape))
    norms = np.abs(attributions).reshape(5, -1).sum(axis=1, keepdims=True)
    expected = by_loop(attributions, size) / norms
    on_device = batch.vectors(torch.from_numpy(attributions), size).numpy()
    for ours in (vectors(attributions, size), on_device):
        assert ours.dtype == np.float16 and ours.shape == (5, length) == (5, numbers(shape, size))
        np.testing.assert_allclose(ours, expected, rtol=6e-4, atol=1e-7)


def test_no_attribution_is_a_vector_of_zeros() -> None:
    assert not vectors(np.zeros((2, 3)), 8).any() and not batch.vectors(torch.zeros(2, 3), 8).any()
