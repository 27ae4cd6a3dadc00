"""The cost of answers in Gaussian DP, and the filter that decides before each answer whether the budget allows it.

Let answers be chosen adaptively, and let the i-th be μᵢ-GDP given the earlier ones. If they stop before Σ μᵢ² exceeds
μ², all of them together are μ-GDP (Smith and Thakurta 2022, theorem 2). So the ledger counts μ² as the cost of an
answer; `mia_audit.privacy.gaussian` turns μ into ε at δ and back, exactly.
"""

import math

from mia_audit.privacy.gaussian import mu_for

ROUNDING = 1e-12
"""Relative rounding error in sums of costs that the filter tolerates; it changes ε by less than a share of 10⁻¹²."""


def published_multiplier(epsilon: float, steps: int, delta: float) -> float:
    """Return σ m/c of Algorithm 1 of Patel et al. 2020: √(16 T log(e + √T ε/δ) log(T/δ))/ε, about 20 times the necessary noise."""
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
