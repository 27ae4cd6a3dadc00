"""Where ε is computed and calibrated: the Poisson-subsampled Gaussian mechanism under add/remove adjacency of one record.

`pld` (the default) is exact in closed form for a single step and without subsampling, and Google's dp-accounting
otherwise (Koskela et al. 2020; Doroshenko et al. 2022); `prv` and `rdp` are Opacus's accountants.
"""

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from threadpoolctl import threadpool_limits

from mia_audit.errors import UserError
from mia_audit.privacy.composition import epsilon_of_sum
from mia_audit.privacy.gaussian import epsilon_of_gdp, largest_epsilon
from mia_audit.runtime.torchvision_guard import guard

SMALLEST, UNREACHABLE = 1e-3, 1e6
"""Noise multipliers between which a budget's is looked for."""

LEAST_EPSILON = 1e-4
"""No smaller budget is calibrated for."""

PRECISION = 1e-3
"""Relative change of ε at which a PLD's interval is fine enough: a third of the interval changes the error to a ninth."""

TINY = 1e-3
"""Below this ε the precision is that of this ε."""

POINTS = 2**20
"""Most points of one step's PLD: finer ones take minutes."""

ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [2**k for k in range(6, 12)]
"""Rényi orders: Opacus's own end at 63, which no ε below some 0.2 can be told by."""


def steps_per_epoch(records: int, batch: int) -> int:
    """Return how many Poisson batches of `batch` expected records make one expected pass over the training set."""
    return max(1, round(records / batch))


@cache
def epsilon_spent(noise_multiplier: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return ε at δ after `steps` steps, by the `pld`, `prv` or `rdp` accountant; inf without noise, 0 without a step.

    Raises UserError where the PRV accountant would need more memory than there is.
    """
    if steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    # one thread: the last digit of a sum depends on how many share it, and the noise must not depend on the machine's cores
    with threadpool_limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on ranges of orders, overflow to inf
        return ACCOUNTANTS[accountant](noise_multiplier, sampling_rate, steps, delta)


def _pld(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    """Return ε, exactly or right to about 5e-4 of itself; where it is not exact it is an upper bound."""
    if sampling_rate == 1:
        return epsilon_of_gdp(math.sqrt(steps) / noise_multiplier, delta)
    if steps == 1:
        return _single_step(noise_multiplier, sampling_rate, delta)
    if steps * _single_step_delta(noise_multiplier, sampling_rate, 0.0) <= delta:
        return 0.0  # the total variation of all steps together is below δ
    return composed_epsilon(noise_multiplier, sampling_rate, steps, delta)[0]


def composed_epsilon(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> tuple[float, float]:
    """Return ε of several subsampled steps by dp-accounting, and the discretisation interval at which it was precise enough."""
    bounds = (
        epsilon_of_gdp(math.sqrt(steps) / noise_multiplier, delta),  # the whole set in every step
        steps * _single_step(noise_multiplier, sampling_rate, delta / steps),
        _rdp(noise_multiplier, sampling_rate, steps, delta),
    )
    if min(bounds) <= 0:
        return 0.0, math.inf
    # rounding losses to multiples of an interval Δ raises their mean by at most Δ²/8 a step
    interval = math.sqrt(8 * PRECISION * min(bounds) / steps)
    epsilon = _composed(noise_multiplier, sampling_rate, steps, delta, interval)
    while epsilon > 0 and _points(noise_multiplier, sampling_rate, interval / 3) <= POINTS:
        interval /= 3
        coarse, epsilon = epsilon, _composed(noise_multiplier, sampling_rate, steps, delta, interval)
        if coarse - epsilon <= PRECISION * max(epsilon, TINY):
            break
    return max(0.0, min(epsilon, *bounds)), interval


def _composed(noise_multiplier: float, sampling_rate: float, steps: int, delta: float, interval: float) -> float:
    """Return an upper bound on ε, by losses rounded to multiples of the interval so that no δ falls (connect the dots)."""
    import numpy as np
    from dp_accounting.pld import privacy_loss_distribution

    one = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, value_discretization_interval=interval, sampling_prob=sampling_rate
    )

    def epsilon_of(losses: Any) -> float:
        dense = losses.to_dense_pmf()
        values = (dense._lower_loss + np.arange(dense.size)) * interval
        return epsilon_of_sum(values, np.asarray(dense._probs), dense._infinity_mass, steps, delta)

    return max(epsilon_of(one._pmf_remove), epsilon_of(one._pmf_add))  # a record removed, and one added


def _points(noise_multiplier: float, sampling_rate: float, interval: float) -> float:
    """Return about how many multiples of the interval the losses of one step reach over, 10 deviations out."""
    from numpy import logaddexp

    far = (10 * noise_multiplier + 0.5) / noise_multiplier**2
    return float(logaddexp(math.log1p(-sampling_rate), math.log(sampling_rate) + far)) / interval


def _single_step(noise_multiplier: float, sampling_rate: float, delta: float) -> float:
    """Return ε at δ of one step, exactly."""
    return largest_epsilon(lambda epsilon: _single_step_delta(noise_multiplier, sampling_rate, epsilon) > delta)


def _single_step_delta(noise_multiplier: float, sampling_rate: float, epsilon: float) -> float:
    """Return δ at ε of one step: that of P = (1 − q)N(0, σ²) + q N(1, σ²) against Q = N(0, σ²), or of Q against P, the larger.

    P's loss grows with the output x and exceeds ε where x > ½ + σ² log(1 + (e^ε − 1)/q); Q's exceeds it below
    ½ + σ² log(1 + (e^−ε − 1)/q), nowhere once e^−ε ≤ 1 − q.
    """
    from scipy.special import ndtr

    sigma, rate = noise_multiplier, sampling_rate
    # beyond 700 e^ε overflows, and 1 beside it is nothing
    log_ratio = math.log1p(math.expm1(epsilon) / rate) if epsilon < 700 else epsilon - math.log(rate)
    cut = sigma * log_ratio + 0.5 / sigma
    removed = rate * ndtr(1 / sigma - cut) - _scaled(_log_tail(cut), epsilon, 1 - rate)
    lost = 1 + math.expm1(-epsilon) / rate
    added = 0.0
    if lost > 0:
        cut = sigma * math.log(lost) + 0.5 / sigma
        mixed = (1 - rate) * ndtr(cut) + rate * ndtr(cut - 1 / sigma)
        added = ndtr(cut) - math.exp(epsilon) * mixed
    return float(max(removed, added))


def _log_tail(cut: float) -> float:
    from scipy.special import log_ndtr

    return float(log_ndtr(-cut))


def _scaled(log_tail: float, epsilon: float, kept: float) -> float:
    """Return (e^ε − kept) e^log_tail."""
    return math.exp(epsilon + log_tail) - kept * math.exp(log_tail)


def _rdp(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    guard()
    from opacus.accountants.analysis import rdp

    known = rdp.compute_rdp(q=sampling_rate, noise_multiplier=noise_multiplier, steps=steps, orders=ORDERS)
    return max(0.0, float(rdp.get_privacy_spent(orders=ORDERS, rdp=known, delta=delta)[0]))


def _prv(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    guard()
    from opacus.accountants import create_accountant

    # its mesh has an error of 0.01 over all steps, and has to reach beyond the ε of RDP at a thousandth of δ
    reach = 2 * _rdp(noise_multiplier, sampling_rate, steps, delta / 3000)
    points = reach * math.sqrt(steps * math.log(12000 / delta) / 2) / 0.01
    if not points < 2**27:
        raise UserError(
            f"the PRV accountant would need {8 * points / 2**30:.2g} GiB for noise multiplier {noise_multiplier:g}:"
            " choose accountant pld"
        )
    ledger = create_accountant("prv")
    ledger.history = [(noise_multiplier, sampling_rate, steps)]
    return float(ledger.get_epsilon(delta))


ACCOUNTANTS: dict[str, Callable[[float, float, int, float], float]] = {"pld": _pld, "prv": _prv, "rdp": _rdp}


@cache
def noise_multiplier_for(epsilon: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return a noise multiplier that spends at most ε over `steps` steps, and at least 99.9 % of it (PRV: 0.01 less).

    Raises UserError for an ε below 10⁻⁴, or that no multiplier between 10⁻³ and 10⁶ reaches.
    """
    unreachable = UserError(
        f"ε = {epsilon:g} at δ = {delta:g} cannot be reached in {steps} steps at sampling rate {sampling_rate:.4g}"
        f" by the {accountant} accountant: raise mechanisms.*.epsilon or lower training.epochs or training.batch"
    )
    if epsilon < LEAST_EPSILON:
        raise unreachable
    slack = epsilon * PRECISION if accountant != "prv" else min(0.01, epsilon / 100)

    def spent(noise_multiplier: float) -> float:
        return epsilon_spent(noise_multiplier, sampling_rate, steps, delta, accountant)

    # ε falls with the multiplier z, and log ε is nearly linear in log z: double or halve, then a secant, halving where it lags
    high = 1.0
    if accountant != "rdp":  # which is quick, and asks for somewhat more noise than the others
        with suppress(UserError):
            high = noise_multiplier_for(epsilon, sampling_rate, steps, delta, "rdp")
    while spent(high) > epsilon:
        high *= 2
        if high > UNREACHABLE:
            raise unreachable
    step = 0.5 if accountant == "rdp" else 0.8
    low = step * high
    while spent(low) <= epsilon:
        low, high = step * low, low
        if high < SMALLEST:
            return high
    lagging = False
    while epsilon - spent(high) > slack and high - low > 1e-9 * high:
        least, most = spent(high), spent(low)
        share = 0.5
        if not lagging and least > 0 and math.isfinite(most):
            share = math.log((epsilon - slack / 2) / least) / math.log(most / least)
        middle = high * (low / high) ** min(max(share, 1e-3), 0.999)
        before = math.log(high / low)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
        lagging = math.log(high / low) > before / 2
    return high
