"""Compute ε, and calibrate noise to ε, for the Poisson-subsampled Gaussian mechanism under add/remove adjacency of one record.

`pld` (the default) is exact, in closed form, for a single step and without subsampling. Otherwise it composes
discretised privacy losses (Koskela et al. 2020; Doroshenko et al. 2022). `prv` and `rdp` are Opacus's accountants.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from threadpoolctl import threadpool_limits

from mia_audit.errors import UserError, first_line
from mia_audit.privacy.composition import epsilon_of_sum
from mia_audit.privacy.gaussian import epsilon_of_gdp, largest_epsilon
from mia_audit.privacy.loss_distribution import losses_of_step, points
from mia_audit.runtime.torchvision_guard import guard

SMALLEST, UNREACHABLE = 1e-3, 1e9
"""Range of the search for a noise multiplier; any multiplier below the smallest is treated as the smallest."""

LEAST_NOISE, LEAST_DELTA = 1e-6, 1e-290
"""Below this noise multiplier, ε counts as infinite; a δ below this one is refused, because its tails underflow."""

NARROWEST = 1e-7
"""Relative difference of multipliers at which the search ends, because RDP's ε, a minimum over few orders, may jump."""

PRECISION = 1e-3
"""Largest relative error of ε from discretisation."""

ROUGH = 0.05
"""The precision in all but the last steps of a search for a noise multiplier."""

TINY = 1e-6
"""Smallest ε with a limit on the relative error. Below this ε, the absolute error may be as large as at this ε."""

POINTS = 2**20
"""Largest number of points of one step's PLD; finer distributions take minutes."""

NEGLIGIBLE = 1e-5
"""Share of δ, over all steps, of the extreme outputs that are counted as revealing everything."""

ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [2**k for k in range(6, 12)]
"""Rényi orders: Opacus's default orders end at 63, too small for an ε below about 0.2."""


def steps_per_epoch(records: int, batch: int) -> int:
    """Return the number of Poisson batches of `batch` expected records in one expected pass over the training set."""
    return max(1, round(records / batch))


@contextmanager
def _alike_on_all_machines() -> Iterator[None]:
    """Compute on one thread, and suppress warnings about the range of orders and about overflow to inf.

    The last digit of a sum depends on the number of threads, and the noise must not depend on the machine's cores.
    """
    with threadpool_limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
@_alike_on_all_machines()
def epsilon_spent(noise_multiplier: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return ε at δ after `steps` steps, by the `pld`, `prv` or `rdp` accountant; inf with hardly any noise, 0 without a step.

    Raises UserError for a δ below LEAST_DELTA, and if the PRV accountant cannot compute this ε.
    """
    _check_delta(delta)
    if steps == 0:
        return 0.0
    if noise_multiplier < LEAST_NOISE:
        return math.inf
    # a smaller multiplier has a larger ε, so this is an upper bound
    return ACCOUNTANTS[accountant](min(noise_multiplier, UNREACHABLE), sampling_rate, steps, delta)


def _check_delta(delta: float) -> None:
    if delta < LEAST_DELTA:
        raise UserError(f"delta {delta:g}: expected at least {LEAST_DELTA:g}, far below any useful δ")


def _pld(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float, precision: float = PRECISION
) -> float:
    """Return ε, exactly or as an upper bound with a relative precision."""
    if sampling_rate == 1:
        return epsilon_of_gdp(math.sqrt(steps) / noise_multiplier, delta)
    if steps == 1:
        return _single_step(noise_multiplier, sampling_rate, delta)
    if steps * _single_step_delta(noise_multiplier, sampling_rate, 0.0) <= delta:
        return 0.0  # the total variation of all steps together is below δ
    return composed_epsilon(noise_multiplier, sampling_rate, steps, delta, precision)[0]


def composed_epsilon(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float, precision: float = PRECISION
) -> tuple[float, float]:
    """Return ε of several subsampled steps, and a discretisation interval that is small enough for `precision`."""
    bound = min(
        epsilon_of_gdp(math.sqrt(steps) / noise_multiplier, delta),  # every step uses the whole set
        steps * _single_step(noise_multiplier, sampling_rate, delta / steps),
    )
    if bound <= 0:
        return 0.0, math.inf
    # rounding losses to multiples of an interval Δ raises their mean by at most Δ²/8 per step
    interval = math.sqrt(8 * precision * bound / steps)
    added, epsilon = math.inf, math.inf
    while True:
        coarse = epsilon
        epsilon, added = _composed(noise_multiplier, sampling_rate, steps, delta, interval, added)
        # dividing the interval by three divides the error by three or more, and by nine where the error is small
        if epsilon == 0 or coarse - epsilon <= 2 * precision * max(epsilon, TINY):
            break
        if points(noise_multiplier, sampling_rate, interval / 3, NEGLIGIBLE * delta / steps) > POINTS:
            break
        interval /= 3
    return max(0.0, min(epsilon, bound)), interval


def _composed(
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    delta: float,
    interval: float,
    added_at_most: float = math.inf,
) -> tuple[float, float]:
    """Return upper bounds on ε and on the ε of an added record, from losses rounded to multiples of the interval.

    Rounding never lowers a δ. The ε of an added record is computed only if its known bound `added_at_most` exceeds
    the ε of a removed record.
    """
    tail = NEGLIGIBLE * delta / steps
    removed, added = losses_of_step(noise_multiplier, sampling_rate, interval, tail)
    epsilon = epsilon_of_sum(*removed, steps, delta)
    if added_at_most > epsilon:
        added_at_most = epsilon_of_sum(*added, steps, delta)
    return max(epsilon, added_at_most), added_at_most


def _single_step(noise_multiplier: float, sampling_rate: float, delta: float) -> float:
    """Return ε at δ of one step, exactly."""
    return largest_epsilon(lambda epsilon: _single_step_delta(noise_multiplier, sampling_rate, epsilon) > delta)


def _single_step_delta(noise_multiplier: float, sampling_rate: float, epsilon: float) -> float:
    """Return δ at ε of one step: the larger of the δs of P against Q and of Q against P.

    Here P = (1 − q)N(0, σ²) + q N(1, σ²) and Q = N(0, σ²). The loss log P/Q grows with the output x and exceeds ε where
    x > ½ + σ² log(1 + (e^ε − 1)/q). The loss log Q/P exceeds ε where x < ½ + σ² log(1 + (e^−ε − 1)/q), and nowhere if
    e^−ε ≤ 1 − q.
    """
    from scipy.special import ndtr

    sigma, rate = noise_multiplier, sampling_rate
    # beyond ε = 700, e^ε overflows, and a term of 1 beside it is negligible
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
    known = rdp_of_steps(noise_multiplier, sampling_rate, steps, ORDERS)
    from opacus.accountants.analysis import rdp

    return max(0.0, float(rdp.get_privacy_spent(orders=ORDERS, rdp=known, delta=delta)[0]))


def rdp_of_steps(noise_multiplier: float, sampling_rate: float, steps: int, orders: Sequence[float]) -> list[float]:
    """Return the Rényi divergence of `steps` steps at every order (Mironov et al. 2019), by Opacus.

    At an order at which Opacus's sum overflows there is no bound: inf.
    """
    guard()
    from opacus.accountants.analysis import rdp

    known = rdp.compute_rdp(q=sampling_rate, noise_multiplier=noise_multiplier, steps=steps, orders=list(orders))
    return [math.inf if math.isnan(divergence) else float(divergence) for divergence in known]


def _prv(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    guard()
    from opacus.accountants import create_accountant

    # PRV's grid has an error of 0.01 over all steps, and must extend beyond the ε of RDP at a thousandth of δ
    reach = 2 * _rdp(noise_multiplier, sampling_rate, steps, delta / 3000)
    points = reach * math.sqrt(steps * math.log(12000 / delta) / 2) / 0.01
    if not points < 2**27:
        raise UserError(
            f"the PRV accountant would need {8 * points / 2**30:.2g} GiB for noise multiplier {noise_multiplier:g}:"
            " choose accountant pld"
        )
    ledger = create_accountant("prv")
    ledger.history = [(noise_multiplier, sampling_rate, steps)]
    try:
        return float(ledger.get_epsilon(delta))
    except ValueError as error:
        raise UserError(
            f"the PRV accountant cannot compute ε at δ = {delta:g} ({first_line(error)}): choose accountant pld"
        ) from None


ACCOUNTANTS: dict[str, Callable[[float, float, int, float], float]] = {"pld": _pld, "prv": _prv, "rdp": _rdp}


@cache
@_alike_on_all_machines()
def noise_multiplier_for(epsilon: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return a noise multiplier that spends at most ε over `steps` steps, and at least 99.9 % of ε (PRV: at least 99 %, or ε − 0.01).

    Raises UserError for an ε that no multiplier up to 10⁹ reaches, and for a δ below LEAST_DELTA.
    """
    _check_delta(delta)
    slack = epsilon * PRECISION if accountant != "prv" else min(0.01, epsilon / 100)

    def spent(noise_multiplier: float) -> float:
        return epsilon_spent(noise_multiplier, sampling_rate, steps, delta, accountant)

    def roughly(noise_multiplier: float) -> float:
        return _pld(noise_multiplier, sampling_rate, steps, delta, ROUGH)

    # most of the search uses a coarse interval; PRV has no interval, so its search starts from PLD's result
    start = _least(roughly, epsilon, ROUGH * epsilon, 1.0, 2.0) if accountant != "rdp" else 1.0
    least = _least(spent, epsilon, slack, start, 2.0 if accountant == "rdp" else 1 + ROUGH) if start else None
    if least is None:
        advice = "raise mechanisms.*.epsilon or lower training.epochs or training.batch"
        raise UserError(
            f"ε = {epsilon:g} at δ = {delta:g} cannot be reached in {steps} steps at sampling rate {sampling_rate:.4g}"
            f" by the {accountant} accountant: {advice if accountant == 'pld' else 'choose accountant pld'}"
        )
    return least


def _least(spent: Callable[[float], float], epsilon: float, slack: float, start: float, factor: float) -> float | None:
    """Return a multiplier that spends at most ε and at least ε − slack; None if no multiplier up to the largest does.

    ε falls with the multiplier z, and log ε is nearly linear in log z: z moves from `start` by growing factors until
    two multipliers enclose the solution. Then the method of false position narrows them.
    """
    low = high = start
    least = most = spent(start)
    stride = factor
    while least > epsilon:
        low, most, high = high, least, high * stride
        stride *= stride
        if low > UNREACHABLE:
            return None
        least = spent(high)
    while most <= epsilon:
        if low <= SMALLEST:
            return low
        high, least, low = low, most, max(low / stride, SMALLEST)
        stride *= stride
        most = spent(low)
    # the Illinois variant of false position: an end that is kept twice counts half
    aim = epsilon - slack / 2
    above, below = _log_ratio(most, aim), _log_ratio(least, aim)
    kept = 0
    while epsilon - least > slack and high - low > NARROWEST * high:
        share = below / (below - above) if math.isfinite(above) and math.isfinite(below) else 0.5
        middle = high * (low / high) ** min(max(share, 1e-3), 0.999)
        value = spent(middle)
        if value <= epsilon:
            high, least, below = middle, value, _log_ratio(value, aim)
            kept = min(kept, 0) - 1
            above /= 2 if kept < -1 else 1
        else:
            low, above = middle, _log_ratio(value, aim)
            kept = max(kept, 0) + 1
            below /= 2 if kept > 1 else 1
    return high


def _log_ratio(value: float, aim: float) -> float:
    return math.log(value / aim) if 0 < value < math.inf else math.copysign(math.inf, value - aim)
