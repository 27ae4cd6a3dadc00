"""The likelihood ratio of vectors against a loop over targets with multivariate normals, and where its model holds."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mia_audit.attacks.design import NO_MODEL, left_out
from mia_audit.attacks.engine import vectors as engine
from mia_audit.attacks.engine.vectors import Stack, hierarchical_vector_ratio, vector_ratio
from mia_audit.signals.name import Columns

from ...builders import mean_auc

RATIOS = [vector_ratio, hierarchical_vector_ratio]


def membership(design, records, models, random):
    """Draw a membership of a design: independent coins, half of the models for every record, or complementary pairs."""
    member = random.random((records, models)) < 0.5
    if design == "balanced":
        member = random.random((records, models)).argsort(axis=1) < models // 2
    if design == "pairs":
        half = random.random((records, models // 2)) < 0.5
        member = np.stack([half, ~half], axis=2).reshape(records, -1)
    return member


def drawn(records=60, models=9, size=4, leak=0.0, seed=0, design="independent"):
    """Vectors [N, K, m] whose in means are shifted by up to `leak` standard deviations, and the membership."""
    random = np.random.default_rng(seed)
    member = membership(design, records, models, random)
    mix = random.standard_normal((size, size))
    shift = leak * (0.5 + random.standard_normal((records, 1, size)))
    own = 5 * random.standard_normal((records, 1, size))
    noise = random.standard_normal((records, models, size))
    return (own + (noise + shift * member[:, :, None]) @ mix).astype(np.float32), member


def by_loop(vectors, member):
    """The definition, target by target and record by record."""
    records, models, size = vectors.shape
    vectors, partners = vectors.astype(float), left_out(member)
    scores = np.full(member.shape, np.nan)
    for target in range(models):
        scatter, freedom, sides = np.zeros((size, size)), 0, []
        for record in range(records):
            shown = np.arange(models) != target
            if partners is not None and partners[record, target] != NO_MODEL:
                shown[partners[record, target]] = False
            pair = [vectors[record, shown & (member[record] == side)] for side in (True, False)]
            for values in pair:
                if len(values):
                    scatter += (values - values.mean(axis=0)).T @ (values - values.mean(axis=0))
                    freedom += len(values) - 1
            sides.append(pair)
        deviation = np.sqrt(np.diag(scatter / freedom))
        shrunk = freedom / (freedom + size)
        correlation = shrunk * scatter / freedom / np.outer(deviation, deviation) + (1 - shrunk) * np.eye(size)
        covariance = correlation * np.outer(deviation, deviation)
        for record, pair in enumerate(sides):
            if all(len(values) for values in pair):
                inside, outside = (
                    multivariate_normal(values.mean(axis=0), covariance).logpdf(vectors[record, target])
                    for values in pair
                )
                scores[record, target] = inside - outside
    return scores


@pytest.mark.parametrize("design", ["independent", "balanced", "pairs"])
@pytest.mark.parametrize("numbers", [1, 1 << 20])
def test_agrees_with_a_loop_over_targets(design, numbers, monkeypatch):
    monkeypatch.setattr(engine, "NUMBERS", numbers)
    vectors, member = drawn(80, 8 if design == "pairs" else 5, leak=1.0, design=design)
    assert (left_out(member) is None) == (design == "independent")
    np.testing.assert_allclose(vector_ratio(vectors, member), by_loop(vectors, member), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_targets_membership_enters_none_of_its_scores(ratio):
    vectors, member = drawn(300, 7, leak=1.0)
    flipped = member.copy()
    flipped[:, 2] = ~flipped[:, 2]
    ours, theirs = ratio(vectors, member)[:, 2], ratio(vectors, flipped)[:, 2]
    np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("design", ["independent", "balanced", "pairs"])
def test_some_targets_have_the_scores_that_they_have_among_all(design):
    vectors, member = drawn(200, 6, leak=1.0, design=design)
    every, some = hierarchical_vector_ratio(vectors, member), np.array([4, 1])
    np.testing.assert_allclose(hierarchical_vector_ratio(vectors, member, some), every[:, some])


def test_a_stack_is_an_array_of_some_models_with_further_coordinates():
    vectors, member = drawn(30, 6)
    norms, some = vectors[:, :, 1].astype(float), np.array([4, 1, 2, 5])
    whole = np.concatenate([vectors, norms[:, :, None]], axis=2)[:, some]
    stack = Stack(Stack(vectors, [Columns(norms)]), models=some)
    assert stack.shape == whole.shape and stack.size == whole.size
    np.testing.assert_array_equal(stack[3:20], whole[3:20])
    ours, theirs = (hierarchical_vector_ratio(one, member[:, some]) for one in (stack, whole))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("ratio", RATIOS)
def test_blocks_that_are_kept_in_memory_or_not_give_the_same_scores(ratio, monkeypatch):
    vectors, member = drawn(200, 6, leak=1.0)
    scores = ratio(vectors, member)
    monkeypatch.setattr(engine, "HELD", 0)
    monkeypatch.setattr(engine, "NUMBERS", 500)
    np.testing.assert_allclose(ratio(vectors, member), scores)


@pytest.mark.parametrize("design", ["independent", "balanced", "pairs"])
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("models", [4, 8, 16])
def test_vectors_without_a_leak_are_guessed_by_chance(ratio, design, models):
    vectors, member = drawn(1500, models, design=design)
    scores = ratio(vectors, member)
    assert abs(mean_auc(np.nan_to_num(scores), member) - 0.5) < 4 * 0.3 / np.sqrt(1500 * models) + 0.005


def test_shrunk_shifts_tell_more_from_few_models():
    vectors, member = drawn(1500, 5, size=10, leak=0.4)
    pooled, shrunk = (mean_auc(np.nan_to_num(ratio(vectors, member)), member) for ratio in RATIOS)
    assert shrunk > pooled + 0.01


@pytest.mark.parametrize("ratio", RATIOS)
def test_constant_and_repeated_coordinates_change_little(ratio):
    vectors, member = drawn(400, 6, leak=1.0)
    more = np.concatenate([vectors, vectors[:, :, :1], np.full((*member.shape, 1), 7, dtype=np.float32)], axis=2)
    scores = ratio(more, member)
    assert np.isfinite(scores[np.isfinite(ratio(vectors, member))]).all()
    assert mean_auc(np.nan_to_num(scores), member) > mean_auc(np.nan_to_num(ratio(vectors, member)), member) - 0.03
    assert not np.nan_to_num(ratio(np.ones((40, 5, 3), dtype=np.float32), member[:40, :5])).any()
