"""One step's discretised privacy losses against its exact trade-off between ε and δ."""

import math

import numpy as np
import pytest

from mia_audit.privacy.accounting import _single_step_delta
from mia_audit.privacy.losses import LossDistribution, losses_of_step

SETTINGS = [
    (1.0, 0.3, 1e-2),
    (0.77, 1e-5, 1e-5),
    (0.05, 0.1, 0.05),
    (30.0, 0.5, 1e-4),
    (1e5, 0.01, 1e-9),
    (1e-3, 0.1, 5.0),
]


def delta_of(distribution: LossDistribution, epsilon: float) -> float:
    above = distribution.losses > epsilon
    discounts = -np.expm1(epsilon - distribution.losses[above])
    return float(distribution.probabilities[above] @ discounts) + distribution.infinite


@pytest.mark.parametrize(("sigma", "rate", "interval"), SETTINGS)
def test_no_delta_falls_and_none_rises_much(sigma: float, rate: float, interval: float) -> None:
    """Between multiples of the interval δ(ε) is a chord; at the multiples it is exact."""
    both = losses_of_step(sigma, rate, interval, 1e-14)
    for one in both:
        assert one.probabilities.min() >= 0
        assert one.probabilities.sum() + one.infinite == pytest.approx(1, abs=1e-12)
        assert np.diff(one.losses) == pytest.approx(interval, rel=1e-6)
    last = float(both[0].losses[-1])
    places = np.unique(np.rint(np.array([0.001, 0.1, 0.4, 0.8]) * last / interval))
    for epsilon, loosest in [(k * interval, 1e-9) for k in places] + [
        ((k + 0.37) * interval, math.inf) for k in places
    ]:
        exact = _single_step_delta(sigma, rate, epsilon)
        found = max(delta_of(one, epsilon) for one in both)
        assert found >= exact * (1 - 1e-6) - 1e-15
        at_the_next = _single_step_delta(sigma, rate, max(0.0, epsilon - interval))
        assert found <= min(exact * (1 + 1e-5) + loosest, at_the_next * (1 + 1e-5) + 1e-9)
