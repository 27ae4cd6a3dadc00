"""What charges cost together, beside what dp-accounting says of the same events."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant, common, privacy_loss_distribution
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy.stats import binom, norm

from mia_audit.privacy import accounting
from mia_audit.privacy.accounting import Gaussian, PoissonGaussian, Stated, Unprotected, ZeroConcentrated
from mia_audit.privacy.gaussian import epsilon_of_gdp

DELTA = 1e-5
TRAINING = PoissonGaussian(1.1, 0.05, 200)
CHARGES = [TRAINING, Gaussian(3.0, 2), PoissonGaussian(2.0, 0.1, 50)]


def event_of(charge):
    noise = events.GaussianDpEvent(charge.noise_multiplier)
    rate = getattr(charge, "sampling_rate", 1.0)
    return events.SelfComposedDpEvent(events.PoissonSampledDpEvent(rate, noise) if rate < 1 else noise, charge.steps)


def test_terms_fixed_before_are_composed_as_dp_accounting_composes_them():
    accountant = PLDAccountant()
    for charge in CHARGES:
        accountant.compose(event_of(charge))
    assert accounting.epsilon_by_losses(CHARGES, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert 0.99 < accounting.epsilon_by_losses([Stated(1.0, 1e-6)], DELTA) <= 1.0
    assert accounting.epsilon_by_losses([], DELTA) == 0
    assert accounting.epsilon_by_losses([TRAINING, Unprotected()], DELTA) == math.inf


@pytest.mark.parametrize("own", [0.0, 1e-6])
def test_stated_guarantees_are_composed_with_others_as_dp_accounting_composes_them(own):
    parameters = [common.DifferentialPrivacyParameters(epsilon, own) for epsilon in (0.5, 0.25, 0.25)]
    theirs = privacy_loss_distribution.from_gaussian_mechanism(2.0, value_discretization_interval=1e-3)
    for one in parameters:
        known = privacy_loss_distribution.from_privacy_parameters(one, value_discretization_interval=1e-3)
        theirs = theirs.compose(known)
    charges = [Gaussian(2.0), *(Stated(one.epsilon, one.delta) for one in parameters)]
    assert accounting.epsilon_by_losses(charges, DELTA) == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=1e-3)
    assert accounting.epsilon_by_losses([Stated(0.7, DELTA)], DELTA) == 0.7  # all of δ is its own
    assert accounting.epsilon_by_losses([Stated(0.7, 1.1 * DELTA)], DELTA) == math.inf


@pytest.mark.parametrize("delta", [1e-20, 5e-23, 1e-300])
def test_no_guarantee_costs_more_than_it_states_at_a_tiny_delta(delta):
    assert accounting.epsilon_by_losses([Stated(0.5)], delta) == pytest.approx(0.5, rel=1e-3)
    assert accounting.epsilon_by_losses([Stated(0.5), Stated(0.25)], delta) == pytest.approx(0.75, rel=1e-3)


@pytest.mark.parametrize("epsilon", [4.9e-5, 1.2e-4, 1e-3])
def test_many_small_guarantees_cost_what_their_binomial_sum_costs(epsilon):
    """ε may be less than half the interval of losses, or no multiple of it: rounding must not lower it."""
    steps = 20_000
    truth = 1 / (1 + math.exp(-epsilon))
    sums = (2 * np.arange(steps + 1) - steps) * epsilon
    spent = accounting.epsilon_by_losses([Stated(epsilon)] * steps, DELTA)
    chances = binom.pmf(np.arange(steps + 1), steps, truth)
    above, below = (np.maximum(0, -np.expm1(share * spent - sums)) @ chances for share in (0.95, 1.0001))
    assert below < DELTA < above


def test_a_filter_lets_as_much_through_as_dp_accounting_at_its_order():
    order = accounting.order_for(8.0, DELTA)
    accountant = RdpAccountant([order])
    for charge in CHARGES:
        accountant.compose(event_of(charge))
    accountant.compose(events.ZCDpEvent(0.02, 0.0))
    charges = [*CHARGES, ZeroConcentrated(0.02)]
    filtered = accounting.epsilon_of_filter([(one.rdp(order), 0.0) for one in charges], order, DELTA)
    assert filtered == pytest.approx(accountant.get_epsilon(DELTA / 2), rel=1e-3)
    gaussians = [Gaussian(3.0, 2), Gaussian(1.5)]
    filtered = accounting.epsilon_of_filter([(one.mu_squared(), 0.0) for one in gaussians], None, DELTA)
    assert filtered == epsilon_of_gdp(math.sqrt(2 / 9 + 1 / 2.25), DELTA / 2)


def test_a_stated_guarantee_is_no_worse_than_randomised_response():
    epsilon = 1.3
    accountant = RdpAccountant([4.0], NeighboringRelation.REPLACE_ONE)
    accountant.compose(events.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2))
    expected = accountant.get_epsilon(DELTA)
    assert accounting.epsilon_of_rdp(4.0, Stated(epsilon).rdp(4.0), DELTA) == pytest.approx(expected, rel=1e-9)
    mu = math.sqrt(Stated(epsilon).mu_squared())
    assert epsilon_of_gdp(mu, 1e-12) > epsilon
    assert accounting.epsilon_of_filter([(0.1, 0.51 * DELTA)], 4.0, DELTA) == math.inf


def test_choosing_between_costs_and_own_deltas_after_a_result_spends_no_more_than_delta():
    """A Gaussian mechanism of a part of the budget; then, by its result, another one of the rest, or an own δ as large as fits."""
    epsilon, budget = 1.0, 0.0
    for cost in np.linspace(0, 1, 4001)[1:]:
        budget = cost if accounting.epsilon_of_filter([(cost, 0.0)], None, DELTA) <= epsilon else budget
    x = np.linspace(-12, 13, 100_001)
    for share in (0.3, 0.6, 0.7):
        first, rest = math.sqrt(share * budget), math.sqrt((1 - share) * budget)
        fits = [
            own
            for own in np.linspace(0, DELTA, 201)
            if accounting.epsilon_of_filter([(share * budget, own)], None, DELTA) <= epsilon
        ]
        left = epsilon - (first * x - first**2 / 2)  # what the loss of the first result leaves of ε
        more = norm.cdf(rest / 2 - left / rest) - np.exp(left) * norm.cdf(-rest / 2 - left / rest)
        own = max(fits) + (1 - max(fits)) * np.maximum(0, 1 - np.exp(left))
        spent = np.trapezoid(norm.pdf(x, first) * np.maximum(more, own), x)
        assert spent <= DELTA


def test_terms_survive_json_and_odd_ones_are_refused():
    for charge in (*CHARGES, Stated(2.0, 1e-6), ZeroConcentrated(0.1), Unprotected()):
        assert accounting.charge_of(accounting.terms_of(charge)) == charge
    for terms in (
        {},
        {"kind": "laplace"},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": "1"},
        {"kind": "gaussian", "noise_multiplier": 1.0, "sampling_rate": 0.1},
        {"kind": "poisson-gaussian", "noise_multiplier": 1.0, "sampling_rate": 1.1, "steps": 3},
        {"kind": "poisson-gaussian", "noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 2.5},
        {"kind": "epsilon-delta", "epsilon": 1.0, "delta": 1.0},
    ):
        with pytest.raises(ValueError, match="entr"):
            accounting.charge_of(terms)
