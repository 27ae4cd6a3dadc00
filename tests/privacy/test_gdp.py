import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from mia_audit.privacy.gaussian import (
    allows,
    epsilon_of_gdp,
    limit_for,
    mu_for,
    multiplier_for,
    published_multiplier,
    selection_cost,
    selection_epsilon,
    step_cost,
)


def test_what_the_published_noise_really_costs():
    multiplier = published_multiplier(0.1, 300, 1e-6)
    mu = math.sqrt(300) / multiplier
    assert round(epsilon_of_gdp(mu, 1e-6), 4) == 0.0042
    assert round(epsilon_of_gdp(2 * mu, 1e-6), 4) == 0.0091
    assert 15 < multiplier / multiplier_for(0.1, 300, 1e-6) < 25


def test_a_thousand_queries_cost_what_their_composition_costs():
    """Concentrated DP charged 1.32."""
    cost = 1000 * 300 * step_cost(multiplier_for(0.03, 300, 1e-6))
    assert round(epsilon_of_gdp(math.sqrt(cost), 1e-6), 2) == 1.22


@given(epsilon=st.floats(1e-3, 100), steps=st.integers(1, 1000), delta=st.sampled_from([1e-10, 1e-6, 1e-3]))
@settings(max_examples=40, deadline=None)
def test_a_query_that_costs_the_whole_budget_is_allowed_once(epsilon, steps, delta):
    limit, cost = limit_for(epsilon, delta), steps * step_cost(multiplier_for(epsilon, steps, delta))
    assert allows(limit, 0.0, cost)
    assert not allows(limit, cost, cost)
    assert epsilon_of_gdp(mu_for(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 4.0, 12.0])
def test_the_exponential_mechanism_costs_the_worst_of_its_dominating_pairs(epsilon):
    """Randomised response with losses t and t − ε: the Gaussian through its vertex has μ = Φ⁻¹(P(1)) − Φ⁻¹(Q(1))."""
    losses = np.linspace(1e-6 * epsilon, (1 - 1e-6) * epsilon, 100_001)
    absent = -np.expm1(losses - epsilon) / (np.exp(losses) - np.exp(losses - epsilon))
    worst = (ndtri(np.exp(losses) * absent) - ndtri(absent)).max()
    assert selection_cost(epsilon) == pytest.approx(worst**2, rel=1e-6)
    assert selection_epsilon(selection_cost(epsilon)) == pytest.approx(epsilon, rel=1e-9)
