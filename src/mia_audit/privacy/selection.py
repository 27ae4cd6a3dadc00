"""Release the best of a random number of private runs: the number of runs, and the privacy cost (Papernot and Steinke 2022)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

HALVINGS = 200
"""Number of halvings in the search for γ."""


def rdp_of_selection(
    orders: Sequence[float], run: Float[np.ndarray, " o"], mean: float, shape: float
) -> Float[np.ndarray, " o"]:
    """Return the Rényi divergence of the best of a random number of runs, at ascending orders, given that of one run.

    ε(λ) + (1 + η)(1 − 1/λ̂) ε(λ̂) + (1 + η) log(1/γ)/λ̂ + log E[K]/(λ − 1), at the best λ̂ (theorem 2). The value at a
    larger order is also a bound.
    """
    grid = np.asarray(orders, dtype=np.float64)
    gamma = gamma_of(mean, shape)
    constant = (1 + shape) * float(np.min((1 - 1 / grid) * run - math.log(gamma) / grid))
    bounds = run + math.log(mean) / (grid - 1) + constant
    return np.asarray(np.minimum.accumulate(bounds[::-1])[::-1])


def gamma_of(mean: float, shape: float) -> float:
    """Return γ of the truncated negative binomial distribution with this mean and shape, rounded down, because a smaller γ costs more."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if mean_of(middle, shape) < mean else (middle, high)
    return low if low > 0 else high


def mean_of(gamma: float, shape: float) -> float:
    """Return the mean number of runs, η(1 − γ)/(γ(1 − γ^η)), or (1/γ − 1)/log(1/γ) at shape 0."""
    if gamma >= 1:
        return 1.0
    if shape == 0:
        return (1 / gamma - 1) / math.log(1 / gamma)
    return -shape * (1 - gamma) / (gamma * math.expm1(shape * math.log(gamma)))


def draw_runs(mean: float, shape: float, uniform: float) -> int:
    """Return the number of runs, at least 1, at which the distribution function of the truncated negative binomial passes `uniform`.

    P(k) = (1 − γ)^k/(γ^(−η) − 1) · Π (l + η)/(l + 1) over l < k (definition 1); at shape 0 (1 − γ)^k/(k log(1/γ)).
    """
    gamma = gamma_of(mean, shape)
    if gamma >= 1:
        return 1
    count = 1
    scale = math.log(1 / gamma) if shape == 0 else math.expm1(-shape * math.log(gamma)) / shape
    chance = (1 - gamma) / scale
    left = uniform - chance
    while left > 0 and chance > 0:
        chance *= (1 - gamma) * (count + shape) / (count + 1)
        count += 1
        left -= chance
    return count
