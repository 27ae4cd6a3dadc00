import numpy as np
import pytest

from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.signals.compute import membership_signals, neighbours

TERMS = ExplanationTerms(1.0, 1e-6, 1.0, steps=20)


def test_the_nearest_other_point(clustered):
    points = clustered(80, 3).records.astype(float)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_array_equal(neighbours(points), distance.argmin(axis=1))


def signals(table, member, asked, noisy=False):
    return membership_signals(table.explained, member, asked, TERMS, noisy, (0, "test"))


def test_a_records_own_explanation_says_nothing_of_it_and_its_neighbours_does(clustered):
    table = clustered(60, 3)
    inside = np.arange(60) % 2 == 0
    outside = inside.copy()
    outside[10] = False
    own, others = np.arange(60), neighbours(table.explained.points(table.records))
    for name in ("local_linear_l1", "local_linear_variance"):
        same = [signals(table, member, own)[name][10] for member in (inside, outside)]
        assert same[0] == pytest.approx(same[1], rel=1e-9)
        moved = [signals(table, member, others)[name][10] for member in (inside, outside)]
        assert moved[0] != pytest.approx(moved[1], rel=1e-6)


def test_the_fit_is_better_at_members(clustered):
    """Few records in many dimensions: an explanation bends to each of them."""
    table = clustered(40, 8, clusters=2)
    random = np.random.default_rng(0)
    asked = neighbours(table.explained.points(table.records))
    errors = {True: [], False: []}
    for _ in range(30):
        member = random.random(40) < 0.5
        found = signals(table, member, asked)["fit_error"]
        for side in (True, False):
            errors[side].append(found[member == side].mean())
    assert np.mean(errors[True]) < 0.9 * np.mean(errors[False])


def test_noise_is_drawn_for_every_query_once(clustered):
    table = clustered(30, 3)
    member = np.ones(30, dtype=bool)
    asked = np.zeros(30, dtype=int)
    norms = signals(table, member, asked, noisy=True)["local_linear_l1"]
    assert np.ptp(norms) == 0
    again = membership_signals(table.explained, member, asked, TERMS, True, (0, "other"))["local_linear_l1"]
    assert norms[0] != again[0]
