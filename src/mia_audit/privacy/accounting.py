"""Compute ε, and calibrate noise to ε, for the Poisson-subsampled Gaussian mechanism under add/remove adjacency of one record.

`pld` (the default) is exact, in closed form, for a single step and without subsampling. Otherwise it composes
discretised privacy losses (Koskela et al. 2020; Doroshenko et al. 2022). `prv` and `rdp` are Opacus's accountants.

A charge is one mechanism applied to a data set, in the form that ledgers (`terms_of`, JSON) and accountants read.
Charges whose terms were all fixed before the first one are composed by their privacy loss distributions. Charges chosen
after seeing earlier results need a filter: for Rényi DP at one order fixed in advance (Feldman and Zrnic 2021, theorem
4.1), or for Gaussian DP (Smith and Thakurta 2022, theorem 2). ε is never summed.

The guarantee for a person with several records, from a guarantee per record: computed exactly for DP-SGD, otherwise by group privacy.

A person's k records are Poisson-sampled independently, so a step includes a Binomial(k, q) number of them, and each
changes the sum by at most the sensitivity. This is a mixture of Gaussians, whose privacy loss is composed over the
steps.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.errors import UserError, first_line
from mia_audit.privacy.gaussian import epsilon_of_gdp, largest_epsilon, selection_cost
from mia_audit.privacy.losses import (
    LossDistribution,
    epsilon_of_sum,
    epsilon_of_sums,
    losses_of_mixture,
    losses_of_step,
    points,
)
from mia_audit.runtime.torchvision_guard import guard

if TYPE_CHECKING:
    from jaxtyping import Float

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
        epsilon, added = _composed(
            noise_multiplier, sampling_rate, steps, delta=delta, interval=interval, added_at_most=added
        )
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


RESOLVED = 100 * 2**-52
"""Smallest δ per step of PRV: its Fourier transform is raised to the power of the steps, and so are its rounding errors."""


def _prv(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    guard()
    from opacus.accountants import create_accountant

    if delta < RESOLVED * steps:
        raise UserError(
            f"the PRV accountant composes {steps} steps in float64, which does not resolve δ = {delta:g} (expected at least"
            f" {RESOLVED * steps:.1g}): choose accountant pld"
        )
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
        return max(0.0, float(ledger.get_epsilon(delta)))
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


INTERVAL = 1e-4
"""Discretisation interval of privacy losses, up to an ε of COARSE."""

FILTER_ORDERS = (1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 64, 128, 256, 512, 1024)
"""Rényi orders of filters; integer orders are fast to compute for subsampled steps."""

COARSE = 20.0
"""Up to this ε losses are multiples of INTERVAL. Beyond it, the interval grows in proportion to ε."""


class Charge(Protocol):
    """One mechanism on a data set. A method raises ValueError if the mechanism does not support that kind of composition."""

    kind: ClassVar[str]

    @property
    def delta(self) -> float:
        """The probability with which the mechanism may reveal everything; `rdp` and `mu_squared` leave it out."""

    def single(self) -> tuple[Charge, int]:
        """Return a mechanism and a number: the charge is that mechanism, independently repeated so many times."""

    def losses(self, interval: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Return the privacy losses of a removed and of an added record, including δ; only of a `single` mechanism."""

    def rdp(self, order: float) -> float:
        """Return the mechanism's Rényi divergence at an order, without δ."""

    def mu_squared(self) -> float:
        """Return the smallest known μ² for which the mechanism is μ-GDP, without δ."""


@dataclass(frozen=True)
class Gaussian:
    """`steps` Gaussian mechanisms on all records, whose noise is `noise_multiplier` times the sensitivity."""

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float
    steps: int = 1
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for invalid numbers."""
        _check(self.noise_multiplier > 0 and self.steps >= 1, self)

    def single(self) -> tuple[Charge, int]:
        """Return the equivalent single mechanism, with 1/√steps of the noise."""
        return Gaussian(self.noise_multiplier / math.sqrt(self.steps)), 1

    def losses(self, interval: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Return the losses of one step, which are the same for a removed and an added record."""
        removed, _ = losses_of_step(self.noise_multiplier, 1.0, interval, tail)
        return removed, removed

    def rdp(self, order: float) -> float:
        """Return α T/(2z²) (Mironov 2017)."""
        return order * self.mu_squared() / 2

    def mu_squared(self) -> float:
        """Return T/z², which is exact (Dong et al. 2022)."""
        return self.steps / self.noise_multiplier**2


@dataclass(frozen=True)
class PoissonGaussian:
    """`steps` Gaussian mechanisms, each on a Poisson sample of the records at `sampling_rate`: DP-SGD."""

    kind: ClassVar[str] = "poisson-gaussian"
    noise_multiplier: float
    sampling_rate: float
    steps: int
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for invalid numbers."""
        _check(self.noise_multiplier > 0 and 0 < self.sampling_rate <= 1 and self.steps >= 1, self)

    def single(self) -> tuple[Charge, int]:
        """Return one step, and the number of steps."""
        if self.sampling_rate == 1:
            return Gaussian(self.noise_multiplier, self.steps).single()
        return replace(self, steps=1), self.steps

    def losses(self, interval: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Return the losses of one step."""
        return losses_of_step(self.noise_multiplier, self.sampling_rate, interval, tail)

    def rdp(self, order: float) -> float:
        """Return the divergence of the subsampled Gaussian mechanism (Mironov et al. 2019), by Opacus."""
        return rdp_of_steps(self.noise_multiplier, self.sampling_rate, self.steps, [order])[0]

    def mu_squared(self) -> float:
        """Return T/z² if the sampling rate is 1. Otherwise raise ValueError, because no μ describes sampled steps well."""
        if self.sampling_rate < 1:
            raise ValueError(
                "an entry has steps on Poisson samples, which a ledger with the filter of Gaussian DP does not support"
            )
        return self.steps / self.noise_multiplier**2


@dataclass(frozen=True)
class ZeroConcentrated:
    """A mechanism known only to be ρ-zCDP (Bun and Steinke 2016)."""

    kind: ClassVar[str] = "zcdp"
    rho: float
    delta: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid ρ."""
        _check(self.rho > 0, self)

    def single(self) -> tuple[Charge, int]:
        """Return the mechanism itself."""
        return self, 1

    def losses(self, interval: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Raise ValueError: ρ does not determine the distribution."""
        raise ValueError("an entry is known only to be ρ-zCDP, which does not determine its privacy loss distribution")

    def rdp(self, order: float) -> float:
        """Return ρα."""
        return self.rho * order

    def mu_squared(self) -> float:
        """Raise ValueError: ρ-zCDP does not bound the trade-off curve by that of a Gaussian."""
        raise ValueError(
            "an entry is known only to be ρ-zCDP, which a ledger with the filter of Gaussian DP does not support"
        )


@dataclass(frozen=True)
class Stated:
    """A mechanism known only to be (ε, δ)-DP: with probability δ it may reveal everything.

    Otherwise it is no worse than randomised response with ε (Kairouz et al. 2015, theorem 3.4).
    """

    kind: ClassVar[str] = "epsilon-delta"
    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for invalid numbers."""
        _check(self.epsilon > 0 and 0 <= self.delta < 1, self)

    def single(self) -> tuple[Charge, int]:
        """Return the mechanism itself."""
        return self, 1

    def losses(self, interval: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Return the losses of randomised response, ε and −ε; an infinite loss has probability δ.

        −ε is divided between two multiples below ε as in `losses_of_step`, however small ε is.
        """
        losses = self.epsilon - interval * np.arange(max(1, math.ceil(2 * self.epsilon / interval)), -1, -1)
        up = np.clip(math.expm1(losses[0] + self.epsilon) / math.expm1(-interval), 0, 1)
        odds = np.exp(-self.epsilon)
        shares = np.zeros(len(losses))
        shares[:2] = (1 - up) * odds, up * odds
        shares[-1] += 1
        known = LossDistribution(losses, shares * (1 - self.delta) / (1 + odds), self.delta)
        return known, known

    def rdp(self, order: float) -> float:
        """Return log(p^α (1−p)^(1−α) + (1−p)^α p^(1−α))/(α − 1), p = e^ε/(1 + e^ε) (Mironov 2017, proposition 5)."""
        likely, unlikely = -math.log1p(math.exp(-self.epsilon)), -math.log1p(math.exp(-self.epsilon)) - self.epsilon
        there = order * likely + (1 - order) * unlikely
        back = order * unlikely + (1 - order) * likely
        return float(np.logaddexp(there, back)) / (order - 1)

    def mu_squared(self) -> float:
        """Return μ² of the Gaussian whose trade-off curve touches that of randomised response at its vertex (Dong et al. 2022)."""
        return selection_cost(2 * self.epsilon)


@dataclass(frozen=True)
class Unprotected:
    """A release from the records without noise."""

    kind: ClassVar[str] = "none"
    delta: ClassVar[float] = 0.0

    def single(self) -> tuple[Charge, int]:
        """Return the mechanism itself."""
        return self, 1

    def losses(self, interval: float, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Return a loss that is always infinite."""
        known = LossDistribution(np.zeros(1), np.zeros(1), 1.0)
        return known, known

    def rdp(self, order: float) -> float:
        """Return inf."""
        return math.inf

    def mu_squared(self) -> float:
        """Return inf."""
        return math.inf


KINDS: dict[str, type[Charge]] = {
    one.kind: one for one in (Gaussian, PoissonGaussian, ZeroConcentrated, Stated, Unprotected)
}
"""Classes of charges, by the `kind` in their terms."""


def terms_of(charge: Any) -> dict[str, Any]:
    """Return the terms of a charge as JSON values."""
    return {"kind": charge.kind} | asdict(charge)


LARGEST = 1e300
"""The largest number in an entry; larger whole numbers are no floats."""


def charge_of(terms: Mapping[str, Any]) -> Charge:
    """Return the charge that terms describe. Raises ValueError for terms that describe no charge."""
    values = dict(terms)
    kind = KINDS.get(values.pop("kind", ""))
    if kind is None:
        raise ValueError(f"an entry of unknown kind; expected one of {', '.join(KINDS)}")
    fields = getattr(kind, "__dataclass_fields__", {})
    if odd := sorted(values.keys() - fields.keys()):
        raise ValueError(f"an entry of kind {kind.kind} with the unknown key '{odd[0]}'")
    for name, value in values.items():
        if type(value) is not int and (type(value) is not float or name == "steps"):
            raise ValueError(f"the {name} of an entry is not a number")
        if abs(value) > LARGEST:
            raise ValueError(f"the {name} of an entry is above {LARGEST:g}")
    try:
        return kind(**values)
    except TypeError:
        raise ValueError(f"an entry of kind {kind.kind} that lacks some of {', '.join(fields)}") from None


def epsilon_by_losses(charges: Sequence[Charge], delta: float) -> float:
    """Return ε at δ of charges whose terms were fixed before the first, by their privacy losses; inf if no finite ε holds."""
    if not charges:
        return 0.0
    counted = Counter[Charge]()
    for charge in charges:
        one, steps = charge.single()
        counted[one] += steps
    interval = INTERVAL * max(1.0, _rough(charges, delta) / COARSE)
    if not math.isfinite(interval):
        return math.inf
    tail = NEGLIGIBLE * delta / counted.total()
    both = [(one.losses(interval, tail), steps) for one, steps in counted.items()]
    removed, added = ([(losses[side], steps) for losses, steps in both] for side in (0, 1))
    return max(epsilon_of_sums(removed, delta, interval), epsilon_of_sums(added, delta, interval))


def _rough(charges: Sequence[Charge], delta: float) -> float:
    """Return a rough estimate of ε, from a few Rényi orders."""
    orders = (1.5, 2.0, 4.0, 8.0, 32.0)
    return min(epsilon_of_rdp(order, sum(charge.rdp(order) for charge in charges), delta) for order in orders)


def epsilon_of_rdp(order: float, divergence: float, delta: float) -> float:
    """Return ε at δ of Rényi DP at one order: r + log(1 − 1/α) − log(δα)/(α − 1) (Canonne et al. 2020, proposition 12)."""
    if delta <= 0 or not math.isfinite(divergence):
        return math.inf
    if divergence == 0:
        return 0.0
    return max(0.0, divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))


def order_for(epsilon: float, delta: float, first: Sequence[Charge] = ()) -> float:
    """Return the Rényi order at which this budget allows the largest number of charges like the first ones.

    Without first charges it is the order that allows the largest number of Gaussian mechanisms.
    """
    orders = list(FILTER_ORDERS)
    cost = sum((divergences(charge, orders) for charge in first), np.zeros(len(orders)))
    if not first or not np.isfinite(cost).any():
        cost = np.asarray(orders)
    left = np.array([epsilon - epsilon_of_rdp(order, 1e-300, (1 - OWN) * delta) for order in orders])
    return float(orders[int(np.argmax(left / cost))])


OWN = 0.5
"""The share of a filter's δ for charges that have a δ of their own."""


def epsilon_of_filter(charges: Sequence[tuple[float, float]], order: float | None, delta: float) -> float:
    """Return the ε at δ of the charges that a filter has allowed: by Rényi DP at an order, or by Gaussian DP without an order.

    A charge is given by its cost (a divergence, or μ²) and its own δ. Own δs may use the share `OWN` of δ, and costs the
    rest, whatever is charged: if one were what the other leaves, then charges chosen after earlier results could spend
    δ on one path and the costs on another, for up to 2δ in all.
    """
    cost, own = sum(cost for cost, _ in charges), sum(own for _, own in charges)
    if not charges:
        return 0.0
    if own > OWN * delta or not math.isfinite(cost):
        return math.inf
    left = (1 - OWN) * delta
    return epsilon_of_gdp(math.sqrt(cost), left) if order is None else epsilon_of_rdp(order, cost, left)


def epsilon_by_orders(charges: Sequence[Charge], delta: float) -> float:
    """Return ε at δ of charges whose terms were fixed before the first, by Rényi DP at the best of all orders."""
    orders = list(FILTER_ORDERS)
    total = sum((divergences(charge, orders) for charge in charges), np.zeros(len(orders)))
    left = delta - sum(charge.delta for charge in charges)
    return min(epsilon_of_rdp(order, float(one), left) for order, one in zip(orders, total, strict=True))


def divergences(charge: Charge, orders: Sequence[float]) -> Float[np.ndarray, " o"]:
    """Return a charge's Rényi divergences at ascending orders, without its δ."""
    if isinstance(charge, PoissonGaussian):
        return np.array(rdp_of_steps(charge.noise_multiplier, charge.sampling_rate, charge.steps, orders))
    return np.array([charge.rdp(order) for order in orders])


def _check(sensible: bool, charge: Any) -> None:
    if not sensible:
        stated = ", ".join(f"{name} {value}" for name, value in asdict(charge).items())
        raise ValueError(f"an entry of kind {charge.kind} with impossible values: {stated}")


NOTHING_LEFT = 200.0
"""With this ε or more there is no protection: odds may change by e^200."""

GROUP_PRECISION = 1e-3
"""Largest relative error from rounding the losses of all steps; rounding to multiples of Δ raises their mean by Δ²/8 per step."""


@cache
def epsilon_of_person(noise_multiplier: float, sampling_rate: float, steps: int, delta: float, records: int) -> float:
    """Return ε at δ for a person with `records` records under DP-SGD with a guarantee per record; inf if no guarantee is left."""
    import numpy as np
    from scipy.stats import binom

    if steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    if sampling_rate == 1:
        epsilon = epsilon_of_gdp(math.sqrt(steps) * records / noise_multiplier, delta)
        return epsilon if epsilon < NOTHING_LEFT else math.inf
    weights = binom.pmf(np.arange(records + 1), records, sampling_rate)
    least = epsilon_spent(noise_multiplier, sampling_rate, steps, delta, "pld")
    if least >= NOTHING_LEFT:
        return math.inf
    interval = math.sqrt(8 * GROUP_PRECISION * max(least, GROUP_PRECISION) / steps)
    sides = losses_of_mixture(noise_multiplier, weights, interval, NEGLIGIBLE * delta / steps)
    epsilon = max(epsilon_of_sum(*one, steps, delta) for one in sides)
    return epsilon if epsilon < NOTHING_LEFT else math.inf


def by_group_privacy(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """Return (kε, δ(e^{kε} − 1)/(e^ε − 1)), the guarantee for k records from (ε, δ) for one record. Return (inf, 1) if that δ reaches 1."""
    if records * epsilon > 700:
        return math.inf, 1.0
    grown = delta * math.expm1(records * epsilon) / math.expm1(epsilon)
    return (records * epsilon, grown) if grown < 1 else (math.inf, 1.0)
