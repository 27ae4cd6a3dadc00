"""Moments under differential privacy: sensitivity by brute force, noise by the mechanism's own inequality, and what they are worth."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest, norm

from mia_audit.evaluation.epsilon_bounds import gaussian_epsilon
from mia_audit.privacy import moments as private_moments
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.privacy.moments import Bounds, Moments, release, sensitivity, sums

ANYWHERE = st.floats(-1e6, 1e6, width=32)
LOW, HIGH = np.array([0.0, -5.0, 1e-3]), np.array([1.0, 200.0, 2e-3])
BOUNDS = Bounds(LOW, HIGH)


def released(records: np.ndarray, epsilon: float, seed: int = 0, bounds: Bounds = BOUNDS) -> Moments:
    return release([records], len(records), bounds, epsilon, 1e-5, (seed,))


@given(records=arrays(np.float32, (4, 3), elements=ANYWHERE), gone=st.integers(0, 3))
def test_neighbouring_pools_differ_by_at_most_the_sensitivity(records: np.ndarray, gone: int) -> None:
    whole, without = (sums([part], BOUNDS) for part in (records, np.delete(records, gone, axis=0)))
    assert np.linalg.norm(whole - without) <= sensitivity(3) * (1 + 1e-9)


def test_the_sensitivity_is_reached_and_never_exceeded_between_the_bounds() -> None:
    grid = np.linspace(0, 1, 1001)
    moved = [np.linalg.norm(sums([np.array([[value]])], Bounds(LOW[:1], HIGH[:1]))) for value in grid]
    assert max(moved) == pytest.approx(sensitivity(1)) == pytest.approx(moved[0])
    corner = np.where([True, False, True], LOW, HIGH)
    assert np.linalg.norm(sums([corner[None]], BOUNDS)) == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_noise_is_the_least_that_the_budget_allows(epsilon: float) -> None:
    found = released(np.zeros((50, 3)), epsilon)

    def spent(noise_multiplier: float) -> float:
        """δ of a Gaussian mechanism at ε (Balle and Wang 2018, theorem 8), for two neighbours as far apart as may be."""
        half, whole = 1 / (2 * noise_multiplier), epsilon * noise_multiplier
        return float(norm.cdf(half - whole) - math.exp(epsilon) * norm.cdf(-half - whole))

    assert spent(found.noise_multiplier) <= 1e-5 * (1 + 1e-6)
    assert spent(0.999 * found.noise_multiplier) > 1e-5
    assert epsilon_spent(found.noise_multiplier, 1.0, 1, 1e-5, "prv") == pytest.approx(epsilon, abs=0.02)


def test_the_noise_has_the_size_that_is_said() -> None:
    middle = np.tile(BOUNDS.centre, (100, 1))
    drawn = [released(middle, 1.0, seed) for seed in range(400)]
    noise = np.concatenate([(one.mean - BOUNDS.centre) / BOUNDS.reach for one in drawn])
    assert drawn[0].noise == pytest.approx(drawn[0].noise_multiplier * math.sqrt(3) / 100)
    assert kstest(noise, norm(0, drawn[0].noise).cdf).pvalue > 1e-3


def test_a_large_budget_gives_the_moments_themselves() -> None:
    records = np.random.default_rng(0).uniform(LOW, HIGH, (100_000, 3))
    found = released(records, 199.0)
    np.testing.assert_allclose(found.mean, records.mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(found.sd, records.std(axis=0), rtol=1e-3)
    assert not found.floored.any()


def test_values_beyond_the_bounds_count_as_the_bounds() -> None:
    inside = np.where(np.arange(20_000)[:, None] % 2, LOW, HIGH)
    outside = np.where(np.arange(20_000)[:, None] % 2, LOW - 7, HIGH + 1e9)
    np.testing.assert_array_equal(sums([outside], BOUNDS), sums([inside], BOUNDS))


@settings(max_examples=50, deadline=None)
@given(
    records=arrays(np.float32, (5, 3), elements=ANYWHERE),
    epsilon=st.sampled_from([0.01, 1.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_whatever_the_noise_constants_are_between_the_bounds_and_scales_positive(
    records: np.ndarray, epsilon: float, seed: int
) -> None:
    found = released(records, epsilon, seed)
    slack = 1e-9 * BOUNDS.reach
    assert ((found.mean >= LOW - slack) & (found.mean <= HIGH + slack)).all()
    floor = BOUNDS.reach * math.sqrt(min(found.noise, 1.0))
    assert ((found.sd >= floor * (1 - 1e-12)) & (found.sd <= BOUNDS.reach)).all()
    np.testing.assert_allclose(found.sd[found.floored], floor[found.floored])


def test_the_spread_of_a_column_of_one_value_is_the_floor() -> None:
    constant = np.tile([0.5, 3.0, 1.5e-3], (1000, 1))
    found = released(constant, 1.0)
    negative = [column for seed in range(20) for column in released(constant, 1.0, seed).floored]
    assert any(negative)
    np.testing.assert_allclose(found.sd[found.floored], BOUNDS.reach[found.floored] * math.sqrt(found.noise))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e160, -1e160])
def test_no_value_of_a_record_makes_itself_known(value: float) -> None:
    records = np.tile(BOUNDS.centre, (5, 1))
    records[0] = value
    for moved in (sums([records], BOUNDS), sums([np.full((1, 3), value, dtype=np.float64)], BOUNDS)):
        assert np.isfinite(moved).all()
    assert np.linalg.norm(sums([records], BOUNDS) - sums([records[1:]], BOUNDS)) <= sensitivity(3) * (1 + 1e-9)
    assert all(np.isfinite(part).all() for part in (released(records, 1.0).mean, released(records, 1.0).sd))


def test_a_record_of_nan_adds_nothing() -> None:
    records = np.tile(BOUNDS.low, (5, 1))
    records[0] = math.nan
    np.testing.assert_array_equal(sums([records], BOUNDS), sums([records[1:]], BOUNDS))


def test_chunks_make_no_difference() -> None:
    records: Any = np.random.default_rng(0).uniform(LOW, HIGH, (90, 3))
    np.testing.assert_allclose(sums(np.split(records, 9), BOUNDS), sums([records], BOUNDS), rtol=1e-12)


def shown(epsilon: float, trials: int = 4000) -> float:
    """Bound ε from below by whether a record at the bounds is in the pool, for whoever knows all others and sees what is released."""
    others = np.tile(BOUNDS.centre, (50, 1))
    pools = (others, np.concatenate([others, HIGH[None]]))
    scores = np.array(
        [
            ((release([pool], 50, BOUNDS, epsilon, 1e-5, (trial,)).mean - BOUNDS.centre) / BOUNDS.reach).sum()
            for pool in pools
            for trial in range(trials)
        ]
    ).reshape(2, trials)
    middle = 3 / 50 / 2  # the record moves the means' places by 1/50 each
    false, true = (int((side > middle).sum()) for side in scores)
    return gaussian_epsilon(true, false, trials, trials, 0.05, 1e-5)


def test_an_adversary_proves_nearly_the_epsilon_and_no_more() -> None:
    assert 0.75 * 8 < shown(8.0) <= 8


def test_an_adversary_catches_noise_for_one_column_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_moments, "sensitivity", lambda columns: 1.0)
    assert shown(8.0) > 8
