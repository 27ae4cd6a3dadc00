"""The Gaussian mechanism's noise is exactly what a budget needs, by its defining inequality and by Opacus's accountant."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from mia_audit.errors import UserError
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.privacy.gaussian import check_privacy, epsilon_of_gdp, multiplier_for


@settings(max_examples=20, deadline=None)
@given(epsilon=st.floats(0.01, 20), steps=st.integers(1, 400), delta=st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_calibration_is_exact(epsilon, steps, delta):
    multiplier = multiplier_for(epsilon, steps, delta)
    mu = math.sqrt(steps) / multiplier
    assert epsilon_of_gdp(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of_gdp(mu, delta) <= epsilon * (1 + 1e-9)
    profile = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert profile == pytest.approx(delta, rel=1e-3)


def test_opacus_agrees():
    assert epsilon_spent(multiplier_for(1.0, 50, 1e-5), 1.0, 50, 1e-5, "prv") == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [(0.0, 1e-6, "epsilon 0: expected a positive number"), (1.0, 1.0, "delta 1: expected"), (1.0, 0.0, "delta 0")],
)
def test_a_budget_that_is_none_is_named(epsilon, delta, words):
    with pytest.raises(UserError, match=words):
        check_privacy(epsilon, delta)
