from dataclasses import replace

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.explain.private_local import records
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.solver import minimum
from mia_audit.explain.private_local.terms import ExplanationTerms, capped, kernels

TERMS = ExplanationTerms(epsilon=1.0, delta=1e-6, budget=5.0, steps=10)


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


@pytest.mark.parametrize("published", [(), ("uncentred",), ("weight", "uncentred")])
@pytest.mark.parametrize("kernel", kernels.names())
def test_the_moments_are_those_of_the_loss(clustered, monkeypatch, published, kernel):
    monkeypatch.setattr(records, "BLOCK", 8 * 3 * 25)  # three queries and some dozens of records at a time
    monkeypatch.setattr(records, "NUMBERS", 5 * 40)
    random = np.random.default_rng(0)
    explained = ExplanationSet.from_arrays(clustered(150, 5).records, random.uniform(-1, 1, (150, 3)))
    terms = replace(TERMS, kernel=kernel, as_published=published)
    queries = explained.points(explained.records[[0, 1, 80, 3, 4]])
    values, classes = random.uniform(-1, 1, 5), np.array([0, 2, 1, 1, 0])
    phi, expected = brute(explained, queries, values, classes, terms)
    for problem, (loss, gradient) in zip(explained.problems(queries, values, classes, terms), expected, strict=True):
        assert problem.loss(phi) == pytest.approx(loss, rel=1e-9)
        np.testing.assert_allclose(problem.gradient(phi), gradient, atol=1e-12)


def test_far_from_the_origin_no_digits_are_lost(clustered):
    table = clustered(100, 4)
    far = ExplanationSet.from_arrays(
        table.records.astype(np.float64) + 1000.0, table.black_box(table.records), scale=2.0
    )
    near = ExplanationSet.from_arrays(table.records.astype(np.float64), table.black_box(table.records), scale=2.0)
    solved = [
        minimum(next(part.problems(part.points(part.records[:1]), part.values[:1, 0], np.zeros(1, int), TERMS)))
        for part in (far, near)
    ]
    np.testing.assert_allclose(*solved, atol=1e-8)


def test_memory_maps_and_pixels_are_read_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "NUMBERS", 9 * 7)
    pixels = np.random.default_rng(0).integers(256, size=(30, 1, 3, 3)).astype(np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r")
    explained = ExplanationSet.from_arrays(mapped, np.zeros(30))
    assert explained.scale == 255 * 3
    np.testing.assert_allclose(explained.points(pixels[:2]), pixels[:2].reshape(2, 9) / 765)
    parts = list(explained.blocks())
    assert len(parts) == 5
    np.testing.assert_array_equal(np.concatenate([points for points, _, _ in parts]), pixels.reshape(30, 9) / 765)


def test_values_of_a_black_box_are_one_row_a_record():
    with pytest.raises(UserError, match=r"values of shape \[2, 1\] for 3 records"):
        ExplanationSet.from_arrays(np.zeros((3, 2)), np.zeros(2))


def solved(explained, queries):
    values, classes = np.zeros(len(queries)), np.zeros(len(queries), int)
    return list(explained.problems(explained.points(queries), values, classes, TERMS))


@pytest.mark.parametrize("feature", [np.nan, np.inf, -np.inf, 1e160, -1e160, 3e6])
def test_a_record_outside_the_domain_contributes_nothing(clustered, feature):
    """Its term is 0, as that of a record that is the query itself with the query's value."""
    table = clustered(50, 4)
    points, labels = table.records.astype(np.float64), table.black_box(table.records)
    query = points[3:4].copy()
    points[7], labels[7] = query, 0.0
    without = solved(ExplanationSet.from_arrays(points, labels), query)[0]
    points[7, 2] = feature
    for value in (0.3, np.nan, np.inf):
        labels[7] = value
        with_it = solved(ExplanationSet.from_arrays(points, labels), query)[0]
        np.testing.assert_array_equal(with_it.gram, without.gram)
        np.testing.assert_array_equal(with_it.moment, without.moment)
        assert (with_it.square, with_it.records) == (without.square, 50)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.5, -1e160])
def test_a_record_whose_value_is_none_contributes_nothing(clustered, value):
    table = clustered(50, 4)
    labels = table.black_box(table.records)
    labels[7] = value
    problem = solved(ExplanationSet.from_arrays(table.records, labels), table.records[:1])[0]
    kept = np.arange(50) != 7
    other = solved(ExplanationSet.from_arrays(table.records[kept], labels[kept]), table.records[:1])[0]
    np.testing.assert_allclose(problem.gram, other.gram, rtol=1e-12)
    np.testing.assert_allclose(problem.moment, other.moment, rtol=1e-12)


@pytest.mark.parametrize("companion", [1e6, -2e5, 0.0])
def test_another_query_of_the_call_changes_no_bit(clustered, companion):
    table = clustered(400, 4)
    query = table.records[:1]
    alone = solved(table.explained, query)[0]
    far = np.full((1, 4), companion, dtype=query.dtype)
    for queries, place in ((np.concatenate([query, far]), 0), (np.concatenate([far, far, query]), 2)):
        beside = solved(table.explained, queries)[place]
        assert beside.gram.tobytes() == alone.gram.tobytes()
        assert beside.moment.tobytes() == alone.moment.tobytes()
        assert beside.square == alone.square


@pytest.mark.parametrize("feature", [np.nan, np.inf, 3e6, 1e160])
def test_a_query_outside_the_domain_is_refused(clustered, feature):
    queries = clustered(3, 4).records.astype(np.float64)
    queries[1, 2] = feature
    with pytest.raises(
        UserError, match="query 1 has a feature that is not finite, or not between −1e\\+06 and 1e\\+06"
    ):
        clustered(3, 4).explained.points(queries)


def specials(kind):
    """Return the numbers of a type that raise NumPy's warnings, among them NaNs that signal, such as R's NA_real_."""
    about = np.finfo(kind)
    numbers = [np.nan, np.inf, -np.inf, about.max, -about.max, about.tiny, about.smallest_subnormal, -0.0]
    quiet = np.array(numbers, dtype=kind)
    if kind is np.longdouble:
        return quiet
    whole = f"u{quiet.itemsize}"
    signalling = quiet[1:2].view(whole) + np.array([1, 0x7A2 % (1 << about.nmant - 1)], dtype=whole)
    return np.concatenate([quiet, signalling.view(kind)])


@pytest.mark.parametrize("place", ["records", "values"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.filterwarnings("error")
def test_no_warning_reveals_a_record(clustered, kind, place):
    table = clustered(50, 4)
    arrays = {"records": table.records.astype(kind), "values": table.black_box(table.records).astype(kind)}
    numbers = specials(kind)
    for row in range(len(numbers)):
        arrays[place].reshape(50, -1)[7, :1] = numbers[row : row + 1]  # as an array, so that a NaN keeps its bits
        with np.errstate(all="raise"):
            explained = ExplanationSet.from_arrays(*arrays.values(), scale=0.5)
            answers = PrivateExplainer(explained, TERMS).answer(np.zeros((1, 4)), np.zeros((1, 1)))
        (problem,) = solved(explained, np.zeros((1, 4)))
        assert np.isfinite(problem.gram).all() and np.isfinite(answers.explanations).all()


def test_a_probabilitys_rounding_is_forgiven():
    assert next(ExplanationSet.from_arrays(np.zeros((1, 2)), np.array([1 + 1e-7])).blocks())[1].max() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((0, 2)), np.zeros(0)), "has no records"),
        ((np.zeros((1, 2)), np.zeros(1), 0.0), "scale 0"),
        ((np.array([["a", 10**400]], dtype=object), np.zeros(1)), "records of the explanation set have the type obj"),
        ((np.zeros((1, 2)), np.array([1j])), "values of the explanation set have the type complex128"),
    ],
)
def test_an_explanation_set_that_is_none_is_named(arguments, words):
    with pytest.raises(UserError, match=words):
        ExplanationSet.from_arrays(*arguments)
