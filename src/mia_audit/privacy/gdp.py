"""What answers cost in Gaussian DP, and the filter that decides before each whether the budget allows it.

A filter over answers chosen adaptively, the i-th of which is μᵢ-GDP given those before it, is μ-GDP as long as it stops
before Σ μᵢ² exceeds μ² (Smith and Thakurta 2022, theorem 2). So μ² is what an answer costs, and the unit of the ledger;
`mia_audit.privacy.gaussian` turns μ into ε at δ and back, exactly.
"""

import math

from mia_audit.privacy.gaussian import mu_for

ROUNDING = 1e-12
"""Relative rounding error of sums of costs that the filter forgives: it changes ε by less than 10⁻¹² of itself."""


def published_multiplier(epsilon: float, steps: int, delta: float) -> float:
    """Return σ m/c of Algorithm 1 of Patel et al. 2020: √(16 T log(e + √T ε/δ) log(T/δ))/ε, some 20 times what is needed."""
    logs = math.log(math.e + math.sqrt(steps) * epsilon / delta) * math.log(steps / delta)
    return math.sqrt(16 * steps * logs) / epsilon


def step_cost(multiplier: float) -> float:
    """Return μ² of one Gaussian step: 1/z² (Dong et al. 2022, theorem 1)."""
    return 1 / multiplier**2


def selection_cost(epsilon: float) -> float:
    """Return μ² of the exponential mechanism exp(εu/2Δ): the least μ with which it is μ-GDP is 2 Φ⁻¹(1/(1 + e^(−ε/2))).

    Its privacy losses lie in [t − ε, t] for some t (Dong et al. 2020, lemma 3), so that randomised response with these two
    losses dominates it. That is μ-GDP where its one vertex is above the Gaussian's curve, and t = ε/2 asks for the most.
    """
    from scipy.special import expit, ndtri

    return float(2 * ndtri(expit(-epsilon / 2))) ** 2  # at the small end, where 1 − p is not rounded to 1


def selection_epsilon(cost: float) -> float:
    """Return ε of the exponential mechanism whose μ² is `cost`."""
    from scipy.special import log_ndtr

    half = math.sqrt(cost) / 2
    return 2 * float(log_ndtr(half) - log_ndtr(-half))


def limit_for(epsilon: float, delta: float) -> float:
    """Return μ² of the whole budget: the largest with an ε at δ of at most ε."""
    return mu_for(epsilon, delta) ** 2


def allows(limit: float, spent: float, cost: float) -> bool:
    """Return whether an answer of this cost may be given after `spent`: Σ μᵢ² ≤ μ²."""
    return spent + cost <= limit * (1 + ROUNDING)
