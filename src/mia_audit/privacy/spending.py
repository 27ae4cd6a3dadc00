"""The privacy spent on a data set: the terms of every charge, and the ε of many charges together.

A charge is one mechanism applied to the data set, in the form that ledgers (`terms_of`, JSON) and accountants read.
Charges whose terms were all fixed before the first one are composed by their privacy loss distributions
(dp-accounting). Charges chosen after seeing earlier results need a filter: for Rényi DP at one order fixed in advance
(Feldman and Zrnic 2021, theorem 4.1), or for Gaussian DP (Smith and Thakurta 2022, theorem 2). ε is never summed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.privacy.gdp import selection_cost

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from jaxtyping import Float

INTERVAL = 1e-4
"""Discretisation interval of privacy losses, up to an ε of COARSE."""

ORDERS = (1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, *range(5, 64), 64, 128, 256, 512, 1024)
"""Rényi orders of filters; integer orders are fast to compute for subsampled steps."""

COARSE = 20.0
"""Up to this ε losses are multiples of INTERVAL. Beyond it, the interval grows in proportion to ε."""


class Charge(Protocol):
    """One mechanism on a data set. A method raises ValueError if the mechanism does not support that kind of composition."""

    kind: ClassVar[str]

    @property
    def delta(self) -> float:
        """The probability with which the mechanism may reveal everything; `rdp` and `mu_squared` leave it out."""

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return the mechanism's privacy loss distribution, including δ."""

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

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return the distribution of the equivalent single mechanism, with 1/√steps of the noise."""
        return _gaussian_losses(self.noise_multiplier / math.sqrt(self.steps), 1.0, interval)

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

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return the distribution of all steps, composed from that of one."""
        if self.sampling_rate == 1:
            return Gaussian(self.noise_multiplier, self.steps).losses(interval)
        return _gaussian_losses(self.noise_multiplier, self.sampling_rate, interval).self_compose(self.steps)

    def rdp(self, order: float) -> float:
        """Return the divergence of the subsampled Gaussian mechanism (Mironov et al. 2019), by Opacus."""
        from mia_audit.privacy.accounting import rdp_of_steps

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

    def losses(self, interval: float) -> PrivacyLossDistribution:
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

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return the distribution of randomised response; an infinite loss has probability δ."""
        from dp_accounting.pld import common, privacy_loss_distribution

        parameters = common.DifferentialPrivacyParameters(self.epsilon, self.delta)
        return privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=interval)

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

    def losses(self, interval: float) -> PrivacyLossDistribution:
        """Return the distribution of a mechanism that reveals everything."""
        from dp_accounting.pld import privacy_loss_distribution

        return privacy_loss_distribution.from_two_probability_mass_functions({0: 0.0}, {1: 0.0})

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
    try:
        return kind(**values)
    except TypeError:
        raise ValueError(f"an entry of kind {kind.kind} that lacks some of {', '.join(fields)}") from None


def epsilon_by_losses(charges: Sequence[Charge], delta: float) -> float:
    """Return ε at δ of charges whose terms were fixed before the first, by dp-accounting's PLD; inf if no finite ε holds."""
    if not charges:
        return 0.0
    if any(isinstance(charge, Unprotected) for charge in charges):
        return math.inf
    interval = INTERVAL * max(1.0, _rough(charges, delta) / COARSE)
    total = charges[0].losses(interval)
    for charge in charges[1:]:
        total = total.compose(charge.losses(interval))
    return float(total.get_epsilon_for_delta(delta))


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
    orders = list(ORDERS)
    cost = sum((divergences(charge, orders) for charge in first), np.zeros(len(orders)))
    if not first or not np.isfinite(cost).any():
        cost = np.asarray(orders)
    left = np.array([epsilon - epsilon_of_rdp(order, 1e-300, delta) for order in orders])
    return float(orders[int(np.argmax(left / cost))])


def epsilon_of_filter(charges: Sequence[tuple[float, float]], order: float | None, delta: float) -> float:
    """Return the ε at δ of the charges that a filter has allowed: by Rényi DP at an order, or by Gaussian DP without an order.

    A charge is given by its cost (a divergence, or μ²) and its own δ.
    """
    cost, own = sum(cost for cost, _ in charges), sum(own for _, own in charges)
    if not charges:
        return 0.0
    if own >= delta or not math.isfinite(cost):
        return math.inf
    return epsilon_of_gdp(math.sqrt(cost), delta - own) if order is None else epsilon_of_rdp(order, cost, delta - own)


def epsilon_by_orders(charges: Sequence[Charge], delta: float) -> float:
    """Return ε at δ of charges whose terms were fixed before the first, by Rényi DP at the best of all orders."""
    orders = list(ORDERS)
    total = sum((divergences(charge, orders) for charge in charges), np.zeros(len(orders)))
    left = delta - sum(charge.delta for charge in charges)
    return min(epsilon_of_rdp(order, float(one), left) for order, one in zip(orders, total, strict=True))


def _gaussian_losses(multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=interval
    )


def divergences(charge: Charge, orders: Sequence[float]) -> Float[np.ndarray, " o"]:
    """Return a charge's Rényi divergences at ascending orders, without its δ."""
    if isinstance(charge, PoissonGaussian):
        from mia_audit.privacy.accounting import rdp_of_steps

        return np.array(rdp_of_steps(charge.noise_multiplier, charge.sampling_rate, charge.steps, orders))
    return np.array([charge.rdp(order) for order in orders])


def _check(sensible: bool, charge: Any) -> None:
    if not sensible:
        stated = ", ".join(f"{name} {value}" for name, value in asdict(charge).items())
        raise ValueError(f"an entry of kind {charge.kind} with impossible values: {stated}")
