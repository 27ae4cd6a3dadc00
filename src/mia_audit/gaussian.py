"""The Gaussian mechanism without sampling: what its noise costs exactly, and which noise a budget needs.

T queries with noise multiplier z are √T/z-GDP, and their ε at δ is exact (Dong et al. 2022). For one query the least noise
is that of the analytic Gaussian mechanism (Balle and Wang 2018, theorem 8).
"""

import math
from functools import cache

from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon import RANGE, epsilon_of_gdp

SEARCH = 80
"""Halvings of a search: to double precision."""


def check_privacy(epsilon: float, delta: float, where: str = "") -> None:
    """Raise UserError unless ε is positive and finite and δ between 0 and 1."""
    if not 0 < epsilon < math.inf:
        raise UserError(f"{where}epsilon {epsilon:g}: an ε is a positive number")
    if not 0 < delta < 1:
        raise UserError(f"{where}delta {delta:g}: expected a number between 0 and 1, far below 1/(records)")


def epsilon_of_steps(multiplier: float, steps: int, delta: float) -> float:
    """Return ε at δ of `steps` Gaussian steps whose noise is `multiplier` times the sensitivity, exactly."""
    return epsilon_of_gdp(math.sqrt(steps) / multiplier, delta)


@cache
def multiplier_for(epsilon: float, steps: int, delta: float) -> float:
    """Return the least noise multiplier with which `steps` Gaussian steps are (ε, δ)-DP."""
    check_privacy(epsilon, delta)
    if epsilon >= RANGE:
        raise UserError(
            f"epsilon {epsilon:g}: noise is calibrated below {RANGE:g} only; an ε that large promises nothing"
        )
    low, high = 0.0, 1.0
    while epsilon_of_gdp(high, delta) < epsilon:
        low, high = high, 2 * high
    for _ in range(SEARCH):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_gdp(middle, delta) <= epsilon else (low, middle)
    return math.sqrt(steps) / low
