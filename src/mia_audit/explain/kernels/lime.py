"""LIME's kernel for tables (Ribeiro et al. 2016): √exp(−d²/w²), w = ¾ in the unit of distance (its default is ¾√n unscaled)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.weights import kernels

if TYPE_CHECKING:
    from mia_audit.explain.weights import Distance

WIDTH = 0.75


@kernels.register("lime")
def lime(distance: Distance) -> Distance:
    """Return exp(−d²/2w²)."""
    return np.asarray(np.exp(-np.square(distance / WIDTH) / 2))
