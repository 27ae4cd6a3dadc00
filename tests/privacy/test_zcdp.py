import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.privacy.gaussian import epsilon_of_steps, multiplier_for
from mia_audit.privacy.zcdp import epsilon_of_rho, published_multiplier, rho_for, step_cost


def test_what_the_published_noise_really_costs():
    multiplier = published_multiplier(0.1, 300, 1e-6)
    assert round(epsilon_of_steps(multiplier, 300, 1e-6), 4) == 0.0042
    assert round(epsilon_of_steps(multiplier / 2, 300, 1e-6), 4) == 0.0091
    assert 15 < multiplier / multiplier_for(0.1, 300, 1e-6) < 25


@pytest.mark.parametrize(("rho", "delta"), [(1e-6, 1e-6), (0.01, 1e-5), (0.5, 1e-6), (3.0, 1e-9)])
def test_the_conversion_of_rho_is_the_least_over_orders_and_above_what_is_exact(rho, delta):
    orders = 1 + np.exp(np.linspace(-8, 12, 400_001))
    brute = rho * orders - (math.log(delta) + np.log(orders)) / (orders - 1) + np.log1p(-1 / orders)
    assert epsilon_of_rho(rho, delta) == pytest.approx(max(0.0, brute.min()), rel=1e-6, abs=1e-9)
    exact = epsilon_of_steps(math.sqrt(1 / (2 * rho)), 1, delta)
    assert exact <= epsilon_of_rho(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


@given(epsilon=st.floats(0.01, 50))
@settings(max_examples=20, deadline=None)
def test_the_budget_in_rho_gives_its_epsilon_back(epsilon):
    assert epsilon_of_rho(rho_for(epsilon, 1e-6), 1e-6) == pytest.approx(epsilon, rel=1e-6)


def test_a_step_costs_what_a_gaussian_costs():
    assert step_cost(2.0) == 1 / 8
