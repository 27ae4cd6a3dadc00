"""Kernels of the distance between a query and a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.weights import kernels

if TYPE_CHECKING:
    from mia_audit.explain.weights import Distance

WIDTH = 0.75
"""LIME's default kernel width, ¾√n, in our unit of distance √n."""


@kernels.register("gaussian")
def gaussian(distance: Distance) -> Distance:
    """Return exp(−d²), the very local weight of Patel et al. 2020, section 3.1."""
    return np.asarray(np.exp(-np.square(distance)))


@kernels.register("lime")
def lime(distance: Distance) -> Distance:
    """Return √exp(−d²/w²), LIME's kernel for tables (Ribeiro et al. 2016)."""
    return np.asarray(np.exp(-np.square(distance / WIDTH) / 2))


@kernels.register("stable")
def stable(distance: Distance) -> Distance:
    """Return 1 everywhere, so that neighbouring queries get similar explanations (Patel et al. 2020, equation 5).

    Beyond the radius (`weights.radius`) only the cap determines the weight.
    """
    return np.ones_like(distance)
