"""Sums of privacy losses: against a Gaussian's closed form and against exact binomial sums, far out in the tail."""

import math

import numpy as np
import pytest
from scipy.fft import irfft, next_fast_len, rfft

from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.privacy.losses import epsilon_of_sum, losses_of_step


@pytest.mark.parametrize("delta", [1e-3, 1e-10, 1e-20])
def test_gaussian_losses_add_up_to_a_gaussian(delta: float) -> None:
    steps, mu = 100_000, 0.01
    losses = np.arange(-15_000, 15_001) * 1e-5
    density = np.exp(-0.5 * ((losses - mu**2 / 2) / mu) ** 2)
    spent = epsilon_of_sum(losses, density / density.sum(), 0.0, steps, delta)
    assert spent == pytest.approx(epsilon_of_gdp(math.sqrt(steps) * mu, delta), rel=1e-4)


@pytest.mark.parametrize("delta", [1e-4, 1e-9])
def test_randomised_responses_add_up_to_a_binomial(delta: float) -> None:
    """k answers with loss +a and n − k with −a: δ(ε) is a sum over k."""
    from scipy.stats import binom

    steps, loss = 1_000, 0.1
    truth = math.exp(loss) / (1 + math.exp(loss))
    spent = epsilon_of_sum(np.array([-loss, loss]), np.array([1 - truth, truth]), 0.0, steps, delta)
    counts = np.arange(steps + 1)
    sums = (2 * counts - steps) * loss
    left = np.maximum(0.0, -np.expm1(spent - sums)) @ binom.pmf(counts, steps, truth)
    assert left == pytest.approx(delta, rel=1e-6)


def test_rare_losses_that_are_huge_are_counted_one_by_one() -> None:
    """In 100 steps at rate 10⁻⁵ three huge losses have probability 1.6 · 10⁻¹⁰, and two have 5 · 10⁻⁷."""
    losses = np.arange(-1, 500_001.0)
    probabilities = np.zeros(len(losses))
    probabilities[[1, -1]] = 1 - 1e-5, 1e-5
    assert epsilon_of_sum(losses, probabilities, 0.0, 100, 1e-10) == pytest.approx(1_500_000, abs=2)
    assert epsilon_of_sum(losses, probabilities, 0.0, 100, 1e-7) == pytest.approx(1_000_000, abs=2)


def test_losses_that_are_infinite_count_whole() -> None:
    losses, probabilities = np.array([-0.5, 0.0, 0.5]), np.array([0.2, 0.4, 0.4 - 1e-6])
    assert epsilon_of_sum(losses, probabilities, 1e-6, 10, 9e-6) == math.inf
    assert epsilon_of_sum(losses, probabilities, 1e-6, 10, 1e-5) == pytest.approx(5.0, abs=1e-3)


def test_no_loss_is_no_epsilon() -> None:
    assert epsilon_of_sum(np.array([-1e-9, 1e-9]), np.array([0.5, 0.5]), 0.0, 10, 1e-3) == 0.0


@pytest.mark.parametrize("direction", [0, 1], ids=["removed", "added"])
def test_a_delta_that_is_what_losses_exceed_epsilon_by_is_that_of_a_sum_without_a_transform(direction: int) -> None:
    """The losses of an added record are at most −log(1 − q): nearly all sums exceed ε, by next to nothing."""
    interval, delta = 5e-4, 1e-3
    one = losses_of_step(0.6, 1e-3, interval, 1e-9)[direction]
    sums = np.convolve(np.convolve(one.probabilities, one.probabilities), one.probabilities)
    losses = 3 * one.losses[0] + np.arange(len(sums)) * interval
    epsilon = epsilon_of_sum(*one, 3, delta)
    beyond = losses > epsilon
    assert sums[beyond] @ -np.expm1(epsilon - losses[beyond]) + 3 * one.infinite == pytest.approx(delta, rel=1e-6)


def test_a_tilted_sum_is_that_of_a_transform_in_higher_precision() -> None:
    """At δ = 10⁻¹⁰ a transform in double precision is 10⁻³ off; in extended precision it needs no tilt."""
    steps, delta, interval = 3000, 1e-10, 0.15
    one = losses_of_step(0.3, 0.05, interval, 1e-18)[0]
    size = next_fast_len(20_000, real=True)
    row = np.zeros(size, dtype=np.longdouble)
    places = np.rint(one.losses / interval).astype(int)
    row[places % size] = one.probabilities
    sums = irfft(power(rfft(row), steps), size)
    lowest = round(steps * float(one.losses @ one.probabilities) / interval) - size // 2
    losses = (lowest + np.arange(size)) * np.longdouble(interval)
    sums = np.roll(sums, -(lowest % size))
    epsilon = epsilon_of_sum(*one, steps, delta)
    for shifted, above in ((epsilon * (1 - 1e-6), True), (epsilon * (1 + 1e-6), False)):
        beyond = losses > shifted
        assert (float(sums[beyond] @ -np.expm1(shifted - losses[beyond])) > delta) == above


def power(base: np.ndarray, exponent: int) -> np.ndarray:
    """Square and multiply: numpy's power is of double precision."""
    half = power(base * base, exponent // 2) if exponent > 1 else np.ones_like(base)
    return half * base if exponent % 2 else half
