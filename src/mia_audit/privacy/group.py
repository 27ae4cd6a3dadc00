"""The guarantee for a person with several records, from a guarantee per record: computed exactly for DP-SGD, otherwise by group privacy.

A person's k records are Poisson-sampled independently, so a step includes a Binomial(k, q) number of them, and each
changes the sum by at most the sensitivity. This is a mixture of Gaussians, whose privacy loss is composed over the
steps.
"""

from __future__ import annotations

import math
from functools import cache

from mia_audit.privacy.accounting import NEGLIGIBLE, epsilon_spent
from mia_audit.privacy.composition import epsilon_of_sum
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.privacy.loss_distribution import losses_of_mixture

NOTHING_LEFT = 200.0
"""With this ε or more there is no protection: odds may change by e^200."""

PRECISION = 1e-3
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
    interval = math.sqrt(8 * PRECISION * max(least, PRECISION) / steps)
    sides = losses_of_mixture(noise_multiplier, weights, interval, NEGLIGIBLE * delta / steps)
    epsilon = max(epsilon_of_sum(*one, steps, delta) for one in sides)
    return epsilon if epsilon < NOTHING_LEFT else math.inf


def by_group_privacy(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """Return (kε, δ(e^{kε} − 1)/(e^ε − 1)), the guarantee for k records from (ε, δ) for one record. Return (inf, 1) if that δ reaches 1."""
    if records * epsilon > 700:
        return math.inf, 1.0
    grown = delta * math.expm1(records * epsilon) / math.expm1(epsilon)
    return (records * epsilon, grown) if grown < 1 else (math.inf, 1.0)
