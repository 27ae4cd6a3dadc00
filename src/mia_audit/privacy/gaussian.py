"""The Gaussian mechanism without sampling: its exact ε, and the noise for a budget.

T queries with noise multiplier z are √T/z-GDP, which gives their exact ε at δ (Dong et al. 2022). The least noise for
one query is that of the analytic Gaussian mechanism (Balle and Wang 2018, theorem 8).

The cost of answers in Gaussian DP, and the filter that decides before each answer whether the budget allows it.

Let answers be chosen adaptively, and let the i-th be μᵢ-GDP given the earlier ones. If they stop before Σ μᵢ² exceeds
μ², all of them together are μ-GDP (Smith and Thakurta 2022, theorem 2). So the ledger counts μ² as the cost of an
answer; `mia_audit.privacy.gaussian` turns μ into ε at δ and back, exactly.
"""

import math
from collections.abc import Callable
from functools import cache

from mia_audit.errors import UserError

SEARCH = 200
"""Largest number of halvings of a search, which usually ends earlier at double precision."""

LARGEST = 1e15
"""Largest ε that is computed."""

CALIBRATED = 200.0
"""Single releases are calibrated below this ε only."""


def check_privacy(epsilon: float, delta: float, where: str = "") -> None:
    """Raise UserError unless ε is positive and finite, and δ lies between 0 and 1."""
    if not 0 < epsilon < math.inf:
        raise UserError(f"{where}epsilon {epsilon:g}: expected a positive number")
    if not 0 < delta < 1:
        raise UserError(f"{where}delta {delta:g}: expected a number between 0 and 1, far below 1/(records)")


@cache
def epsilon_of_gdp(mu: float, delta: float) -> float:
    """Return the ε at which μ-GDP is (ε, δ)-DP: δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) (Dong et al. 2022, corollary 1)."""
    from scipy.special import log_ndtr

    log_delta = math.log(delta) if delta > 0 else -math.inf  # no ε is finite at δ = 0

    def exceeds(epsilon: float) -> bool:
        above = float(log_ndtr(mu / 2 - epsilon / mu))
        below = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        return below < above and above + math.log(-math.expm1(below - above)) > log_delta

    return largest_epsilon(exceeds) if mu > 0 else 0.0


def largest_epsilon(holds: Callable[[float], bool]) -> float:
    """Return the largest ε at which a property still holds, to double precision.

    It is rounded up. It is 0 if the property does not hold at 0, and inf if it holds for every ε in the search.
    """
    if not holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > LARGEST:
            return math.inf
    for _ in range(SEARCH):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


@cache
def mu_for(epsilon: float, delta: float) -> float:
    """Return the largest μ with which μ-GDP is (ε, δ)-DP."""
    check_privacy(epsilon, delta)
    low, high = 0.0, 1.0
    while epsilon_of_gdp(high, delta) < epsilon:
        low, high = high, 2 * high
    for _ in range(SEARCH):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if epsilon_of_gdp(middle, delta) <= epsilon else (low, middle)
    return low


def multiplier_for(epsilon: float, steps: int, delta: float) -> float:
    """Return the least noise multiplier with which `steps` Gaussian steps are (ε, δ)-DP."""
    check_privacy(epsilon, delta)
    if epsilon >= CALIBRATED:
        raise UserError(
            f"epsilon {epsilon:g}: noise is calibrated only below {CALIBRATED:g}; an ε this large guarantees nothing"
        )
    return math.sqrt(steps) / mu_for(epsilon, delta)


ROUNDING = 1e-12
"""Relative rounding error in sums of costs that the filter tolerates; it changes ε by less than a share of 10⁻¹²."""


def published_multiplier(epsilon: float, steps: int, delta: float) -> float:
    """Return σ m/c of Algorithm 1 of Patel et al. 2020: √(16 T log(e + √T ε/δ) log(T/δ))/ε, 10 to 20 times the necessary noise."""
    logs = math.log(math.e + math.sqrt(steps) * epsilon / delta) * math.log(steps / delta)
    return math.sqrt(16 * steps * logs) / epsilon


def step_cost(multiplier: float) -> float:
    """Return μ² of one Gaussian step: 1/z² (Dong et al. 2022, theorem 1)."""
    return 1 / multiplier**2


def selection_cost(epsilon: float) -> float:
    """Return μ² of the exponential mechanism exp(εu/2Δ): it is μ-GDP with the smallest μ = 2 Φ⁻¹(1/(1 + e^(−ε/2))).

    Its privacy losses lie in [t − ε, t] for some t (Dong et al. 2020, lemma 3), so randomised response with these two
    losses dominates the mechanism. Randomised response is μ-GDP if the vertex of its trade-off curve lies on or above
    the Gaussian's curve; the largest μ is needed at t = ε/2.
    """
    from scipy.special import expit, ndtri

    return (
        float(2 * ndtri(expit(-epsilon / 2))) ** 2
    )  # compute it from the smaller probability, because 1 − p would be rounded to 1


def selection_epsilon(cost: float) -> float:
    """Return ε of the exponential mechanism whose μ² is `cost`."""
    from scipy.special import log_ndtr

    half = math.sqrt(cost) / 2
    return 2 * float(log_ndtr(half) - log_ndtr(-half))


def limit_for(epsilon: float, delta: float) -> float:
    """Return μ² of the whole budget: the largest μ² whose ε at δ is within the budget."""
    return mu_for(epsilon, delta) ** 2


def allows(limit: float, spent: float, cost: float) -> bool:
    """Return whether an answer of this cost may be given after `spent`: Σ μᵢ² ≤ μ²."""
    return spent + cost <= limit * (1 + ROUNDING)
