"""Vectors and summaries of attributions against loops, on a device and in NumPy."""

import numpy as np
import pytest
import torch

from mia_audit.explain import batch
from mia_audit.explain.batch import summarise
from mia_audit.explain.vectors import numbers, projection, vectors
from mia_audit.learners.protocol import Attribution, ExplanationRequest
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.catalogue import architectures
from mia_audit.signals.name import SUMMARIES
from mia_audit.training.task import Records


def by_loop(attributions: np.ndarray, size: int) -> np.ndarray:
    """The vectors times the norms, cell by cell, without projections."""
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
@pytest.mark.parametrize("projections", [0, 3])
def test_vectors_are_the_attributions_or_their_sums_over_cells_and_projections(
    shape: tuple[int, ...], size: int, length: int, scale: float, projections: int
) -> None:
    attributions = scale * np.random.default_rng(0).standard_normal((5, *shape))
    options = {"vectors": size, "projections": projections}
    flat = attributions.reshape(5, -1)
    expected = by_loop(attributions, size)
    if flat.shape[1] > size:
        expected = np.concatenate([expected, flat @ projection(flat.shape[1], projections, 7)], axis=1)
        length += projections
    on_device = batch.vectors(torch.from_numpy(attributions), options, 7).numpy()
    for ours in (vectors(attributions, options, 7), on_device):
        assert ours.dtype == np.float16 and ours.shape == (5, length) == (5, numbers(shape, options))
        np.testing.assert_allclose(ours, expected / np.abs(flat).sum(axis=1, keepdims=True), rtol=6e-4, atol=1e-7)


def test_projections_are_standard_normal_and_keyed_by_the_seed() -> None:
    one, other = projection(2000, 40, 0), projection(2000, 40, 1)
    assert abs(one.mean()) < 0.02 and abs(one.std() - 1) < 0.02
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02
    np.testing.assert_array_equal(one, projection(2000, 40, 0))


def test_a_transformers_vectors_are_captums_attributions_summed_over_whole_patches_and_projected() -> None:
    from captum.attr import InputXGradient

    torch.manual_seed(0)
    size = {"img_size": 40, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": 3}
    net = architectures["vision_transformer"].construct("vision_transformer", size)
    images = np.random.default_rng(0).standard_normal((4, 3, 40, 40)).astype(np.float32)
    options = {"explain": ("logit",), "explained_class": "predicted", "vectors": 54, "projections": 5}
    pool = Records(images, np.zeros(4, np.int64), {}, np.arange(4))
    request = ExplanationRequest(["ixg"], options, 3)
    ours = (
        TorchModel(net, 4).summaries(pool, request, outputs=False).explanations[Attribution("ixg", "logit"), "vector"]
    )
    points = torch.from_numpy(images).requires_grad_()
    explained = InputXGradient(net).attribute(points, net(points).argmax(dim=1)).detach().double().numpy()
    edges = [0, 16, 32, 40]  # five patches of 8 pixels in three cells
    of_rows = np.add.reduceat(np.stack([explained, np.abs(explained)], axis=1), edges[:-1], axis=3)
    sums = np.add.reduceat(of_rows, edges[:-1], axis=4).reshape(4, -1)
    flat = explained.reshape(4, -1)
    expected = np.concatenate([sums, flat @ projection(flat.shape[1], 5, 3)], axis=1) / np.abs(flat).sum(1)[:, None]
    assert ours.shape == (4, 54 + 5)
    np.testing.assert_allclose(ours, expected.astype(np.float16), atol=1e-5, rtol=1e-3)


def test_no_attribution_is_a_vector_of_zeros() -> None:
    options = {"vectors": 8, "projections": 4}
    assert not vectors(np.zeros((2, 3)), options, 0).any() and not batch.vectors(torch.zeros(2, 3), options, 0).any()


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_summaries_of_float32_attributions_are_float64(offset: float) -> None:
    attributions = np.random.default_rng(0).normal(offset, 2.0, (6, 3, 8, 8)).astype(np.float32)
    flat = attributions.reshape(6, -1).astype(np.float64)
    expected = {
        "variance": flat.var(axis=1),
        "l1": np.abs(flat).sum(axis=1),
        "l2": np.sqrt((flat**2).sum(axis=1)),
        "linf": np.abs(flat).max(axis=1),
    }
    ours = summarise(torch.from_numpy(attributions))
    assert list(ours) == list(SUMMARIES)
    for name, values in expected.items():
        assert ours[name].dtype == torch.float64
        np.testing.assert_allclose(ours[name].numpy(), values, rtol=1e-12, err_msg=name)


def test_variance_is_over_all_coordinates_not_per_channel() -> None:
    channels = torch.stack([torch.zeros(2, 2), torch.ones(2, 2)])[None]
    assert summarise(channels)["variance"].item() == 0.25
