"""What noise costs over many queries, by concentrated DP: T full-batch Gaussian steps with noise multiplier z are T/(2z²)-zCDP.

What one query costs is exact: see `mia_audit.privacy.gaussian`.
"""

from __future__ import annotations

import math
from functools import cache

from mia_audit.privacy.gaussian import SEARCH, check_privacy


def published_multiplier(epsilon: float, steps: int, delta: float) -> float:
    """Return σ m/c of Algorithm 1 of Patel et al. 2020: √(16 T log(e + √T ε/δ) log(T/δ))/ε, some 20 times what is needed."""
    logs = math.log(math.e + math.sqrt(steps) * epsilon / delta) * math.log(steps / delta)
    return math.sqrt(16 * steps * logs) / epsilon


def step_cost(multiplier: float) -> float:
    """Return ρ of one Gaussian step: 1/(2z²) (Bun and Steinke 2016, proposition 6)."""
    return 1 / (2 * multiplier**2)


@cache
def epsilon_of_rho(rho: float, delta: float) -> float:
    """Return an ε at which ρ-zCDP is (ε, δ)-DP: the least over Rényi orders (Canonne et al. 2020, corollary 13)."""
    from scipy.optimize import minimize_scalar

    if rho <= 0:
        return 0.0

    def at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # the order is 1 + excess
        return (
            rho * (1 + excess) - math.log(delta) / excess + math.log1p(-1 / (1 + excess)) - math.log1p(excess) / excess
        )

    guess = math.log(math.sqrt(-math.log(delta) / rho))
    found = minimize_scalar(at, bounds=(guess - 3, guess + 3), method="bounded", options={"xatol": 1e-10})
    return max(0.0, float(found.fun))


@cache
def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose ε at δ is at most ε: the budget in the filter's unit."""
    check_privacy(epsilon, delta)
    low, high = 0.0, epsilon
    while epsilon_of_rho(high, delta) < epsilon:
        high *= 2
    for _ in range(SEARCH):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_rho(middle, delta) <= epsilon else (low, middle)
    return low
