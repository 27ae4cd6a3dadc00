"""Equal weights nearby, so that neighbouring queries are explained alike (Patel et al. 2020, equation 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.weights import kernels

if TYPE_CHECKING:
    from mia_audit.explain.weights import Distance


@kernels.register("stable")
def stable(distance: Distance) -> Distance:
    """Return 1 everywhere: the cap alone decides, from the radius on."""
    return np.ones_like(distance)
