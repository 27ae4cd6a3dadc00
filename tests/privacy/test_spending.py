"""What charges cost together, beside what dp-accounting says of the same events."""

import math

import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from mia_audit.privacy import spending
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.privacy.spending import Gaussian, PoissonGaussian, Stated, Unprotected, ZeroConcentrated

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
    assert spending.epsilon_by_losses(CHARGES, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert spending.epsilon_by_losses([Stated(1.0, 1e-6)], DELTA) <= 1.0
    assert spending.epsilon_by_losses([], DELTA) == 0
    assert spending.epsilon_by_losses([TRAINING, Unprotected()], DELTA) == math.inf


def test_a_filter_lets_as_much_through_as_dp_accounting_at_its_order():
    order = spending.order_for(8.0, DELTA)
    accountant = RdpAccountant([order])
    for charge in CHARGES:
        accountant.compose(event_of(charge))
    accountant.compose(events.ZCDpEvent(0.02, 0.0))
    charges = [*CHARGES, ZeroConcentrated(0.02)]
    filtered = spending.epsilon_of_filter([(one.rdp(order), 0.0) for one in charges], order, DELTA)
    assert filtered == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    gaussians = [Gaussian(3.0, 2), Gaussian(1.5)]
    filtered = spending.epsilon_of_filter([(one.mu_squared(), 0.0) for one in gaussians], None, DELTA)
    assert filtered == epsilon_of_gdp(math.sqrt(2 / 9 + 1 / 2.25), DELTA)


def test_a_stated_guarantee_is_no_worse_than_randomised_response():
    epsilon = 1.3
    accountant = RdpAccountant([4.0], NeighboringRelation.REPLACE_ONE)
    accountant.compose(events.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2))
    expected = accountant.get_epsilon(DELTA)
    assert spending.epsilon_of_rdp(4.0, Stated(epsilon).rdp(4.0), DELTA) == pytest.approx(expected, rel=1e-9)
    mu = math.sqrt(Stated(epsilon).mu_squared())
    assert epsilon_of_gdp(mu, 1e-12) > epsilon
    assert spending.epsilon_of_filter([(0.1, DELTA)], 4.0, DELTA) == math.inf  # its own δ is all there is


def test_terms_survive_json_and_odd_ones_are_refused():
    for charge in (*CHARGES, Stated(2.0, 1e-6), ZeroConcentrated(0.1), Unprotected()):
        assert spending.charge_of(spending.terms_of(charge)) == charge
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
            spending.charge_of(terms)
