"""Accounting against published values."""

import math

import pytest

from mia_audit.errors import UserError
from mia_audit.training.accounting import epsilon_spent, noise_multiplier_for

DELTA = 1e-5


@pytest.mark.parametrize(
    ("noise_multiplier", "rdp", "prv"), [(1.3, "1.62", "1.48"), (2.2, "0.79", "0.73"), (4.1, "0.38", "0.36")]
)
def test_twenty_epochs_of_mnist(noise_multiplier: float, rdp: str, prv: str) -> None:
    spent = {name: epsilon_spent(noise_multiplier, 500 / 60_000, 2_400, DELTA, name) for name in ("rdp", "prv")}
    assert {name: f"{value:.2f}" for name, value in spent.items()} == {"rdp": rdp, "prv": prv}


@pytest.mark.parametrize(
    ("nominal", "used", "rdp", "prv", "kept"),
    [
        (0.5, 6.094, "1.2", "1.1", 13.44),
        (1, 3.281, "2.4", "2.2", 7.19),
        (2, 1.855, "5.1", "4.6", 3.89),
        (8, 0.830, "19.6", "17.9", 1.36),
    ],
)
def test_noise_calibrated_for_five_times_the_records(
    nominal: float, used: float, rdp: str, prv: str, kept: float
) -> None:
    rate, steps = 1_000 / 10_000, 300
    assert f"{epsilon_spent(used, rate, steps, DELTA, 'rdp'):.1f}" == rdp
    assert f"{epsilon_spent(used, rate, steps, DELTA, 'prv'):.1f}" == prv
    assert noise_multiplier_for(nominal, rate, steps, DELTA, "rdp") == pytest.approx(kept, abs=0.011 * kept)


@pytest.mark.parametrize("accountant", ["prv", "rdp"])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 8.0])
def test_calibration_and_accounting_are_inverse(accountant: str, epsilon: float) -> None:
    noise_multiplier = noise_multiplier_for(epsilon, 0.1, 50, DELTA, accountant)
    assert epsilon - 0.011 <= epsilon_spent(noise_multiplier, 0.1, 50, DELTA, accountant) <= epsilon


def test_one_step_of_the_whole_set_is_the_gaussian_mechanism() -> None:
    from scipy.optimize import brentq
    from scipy.stats import norm

    def delta(epsilon: float) -> float:
        return float(norm.cdf(0.5 / 2 - epsilon / 0.5) - math.exp(epsilon) * norm.cdf(-0.5 / 2 - epsilon / 0.5))

    exact = brentq(lambda epsilon: delta(epsilon) - DELTA, 0, 10)
    assert exact <= epsilon_spent(2.0, 1.0, 1, DELTA, "prv") <= exact + 0.02


def test_the_ends_of_the_scale() -> None:
    assert epsilon_spent(1.0, 0.1, 0, DELTA, "prv") == 0
    assert epsilon_spent(0.0, 0.1, 10, DELTA, "prv") == math.inf


def test_an_unreachable_budget_is_one_line() -> None:
    with pytest.raises(UserError, match="cannot be reached") as raised:
        noise_multiplier_for(1e-7, 1.0, 100_000, DELTA, "rdp")
    assert "\n" not in str(raised.value)
