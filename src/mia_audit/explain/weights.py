"""The weight of a record for a query: a kernel of their distance, capped so that no record changes the gradient by more than c/m.

A record's share of ∇L is (2/m) α(d) (φᵀ(x−z) − y)(x−z), whose norm is at most (2/m) α d (d + Y) for ‖φ‖ ≤ 1 and |y| ≤
Y. This is at most c/m if α ≤ c/(2d(d+Y)) (Patel et al. 2020, lemma 3.1, there for Y = 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator

from mia_audit.registry import Registry
from mia_audit.sections import known

if TYPE_CHECKING:
    from jaxtyping import Float

    Distance = Float[np.ndarray, "*any"]
    Kernel = Callable[[Distance], Distance]

kernels: Registry[Kernel] = Registry("kernel", "mia_audit.explain.kernels", "_", eager=True)
"""Kernels by name: functions from distances to weights between 0 and 1, before the cap."""

KernelName = Annotated[str, AfterValidator(lambda name: known(kernels, name))]
"""The name of a registered kernel, in a section of a config."""


def capped(kernel: Kernel, distance: Distance, c: float, span: float) -> Distance:
    """Return min(kernel(d), c/(2d(d+Y))) for labels of absolute value at most Y = `span`."""
    bound = distance * (distance + span)
    bound *= 2 / c
    with np.errstate(divide="ignore"):
        np.divide(1.0, bound, out=bound)
    return np.minimum(kernel(distance), bound)


def radius(c: float, span: float) -> float:
    """Return the distance at which the cap falls below 1: (√(1 + 2c) − 1)/2 for Y = 1."""
    return (float(np.sqrt(span**2 + 2 * c)) - span) / 2


def published_excess(c: float, span: float) -> float:
    """Return the largest effect of a record on the gradient, in units of c/m, if exp(−d²) is not capped: 1.53 for c = Y = 1.

    This is the largest value of 2 exp(−d²) d (d + Y)/c, reached at 2d³ + 2Yd² − 2d − Y = 0.
    """
    distance = float(np.roots([2.0, 2 * span, -2.0, -span]).real.max())
    return max(1.0, 2 * float(np.exp(-(distance**2))) * distance * (distance + span) / c)
