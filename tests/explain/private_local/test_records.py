from dataclasses import replace

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.explain.private_local import ExplanationSet, Terms, records
from mia_audit.explain.private_local.solver import minimum
from mia_audit.explain.weights import capped, kernels

TERMS = Terms(epsilon=1.0, delta=1e-6, budget=5.0, steps=10)


def brute(explained, queries, values, classes, terms):
    """Return L at some φ of every query straight from its definition, and the gradient by the same sum."""
    found = []
    phi = np.linspace(-0.5, 0.5, explained.features)
    points = explained.points(explained.records)
    for query, value, kind in zip(queries, values, classes, strict=True):
        away = points - query
        distance = np.linalg.norm(away, axis=1)
        weight = capped(kernels[terms.kernel], distance, terms.c, terms.span)
        if "weight" in terms.as_published:
            weight = np.exp(-(distance**2))
        error = away @ phi - (explained.values[:, kind] - (value if terms.centred else 0))
        found.append((weight @ error**2 / len(points), 2 / len(points) * (weight * error) @ away))
    return phi, found


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("published", [(), ("uncentred",), ("weight", "uncentred")])
@pytest.mark.parametrize("kernel", kernels.names())
def test_the_moments_are_those_of_the_loss(clustered, monkeypatch, packed, published, kernel):
    monkeypatch.setattr(records, "PACKED", 128 if packed else 0)
    monkeypatch.setattr(records, "BLOCK", 8 * 3 * 40)  # a few queries and some dozens of records at a time
    random = np.random.default_rng(0)
    explained = ExplanationSet.of(clustered(150, 5).records, random.uniform(-1, 1, (150, 3)))
    terms = replace(TERMS, kernel=kernel, as_published=published)
    queries = explained.points(explained.records[[0, 1, 80, 3, 4]])
    values, classes = random.uniform(-1, 1, 5), np.array([0, 2, 1, 1, 0])
    phi, expected = brute(explained, queries, values, classes, terms)
    for problem, (loss, gradient) in zip(explained.problems(queries, values, classes, terms), expected, strict=True):
        assert problem.loss(phi) == pytest.approx(loss, rel=1e-9)
        np.testing.assert_allclose(problem.gradient(phi), gradient, atol=1e-12)


def test_far_from_the_origin_no_digits_are_lost(clustered):
    table = clustered(100, 4)
    far = ExplanationSet.of(table.records.astype(np.float64) + 1000.0, table.black_box(table.records), scale=2.0)
    near = ExplanationSet.of(table.records.astype(np.float64), table.black_box(table.records), scale=2.0)
    solved = [
        minimum(next(part.problems(part.points(part.records[:1]), part.values[:1, 0], np.zeros(1, int), TERMS)))
        for part in (far, near)
    ]
    np.testing.assert_allclose(*solved, atol=1e-8)


def test_memory_maps_and_pixels_are_read_as_they_are(tmp_path):
    pixels = np.random.default_rng(0).integers(256, size=(30, 1, 3, 3)).astype(np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    explained = ExplanationSet.of(mapped, np.zeros(30))
    assert explained.scale == 255 * 3
    np.testing.assert_allclose(explained.points(pixels[:2]), pixels[:2].reshape(2, 9) / 765)
    parts = list(explained.blocks(7))
    np.testing.assert_array_equal(np.concatenate([points for points, _ in parts]), pixels.reshape(30, 9) / 765)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 1.5, 0.0], r"a value of \[1.5\] at record 1 is outside \[−1, 1\]"),
        ([0.0, np.nan, 0.0], r"a value of \[nan\] at record 1"),
        ([0.0, 0.0], r"values of shape \[2, 1\] for 3 records"),
    ],
)
def test_values_of_a_black_box_are_checked(values, words):
    with pytest.raises(UserError, match=words):
        ExplanationSet.of(np.zeros((3, 2)), np.array(values))


def test_a_probabilitys_rounding_is_forgiven():
    assert ExplanationSet.of(np.zeros((1, 2)), np.array([1 + 1e-7])).values.max() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((np.zeros((0, 2)), np.zeros(0)), "has no records"), ((np.zeros((1, 2)), np.zeros(1), 0.0), "scale 0")],
)
def test_an_explanation_set_that_is_none_is_named(arguments, words):
    with pytest.raises(UserError, match=words):
        ExplanationSet.of(*arguments)
