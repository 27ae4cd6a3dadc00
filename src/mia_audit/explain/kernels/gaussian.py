"""exp(−d²): the very local weight of Patel et al. 2020, section 3.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.weights import kernels

if TYPE_CHECKING:
    from mia_audit.explain.weights import Distance


@kernels.register("gaussian")
def gaussian(distance: Distance) -> Distance:
    """Return exp(−d²)."""
    return np.asarray(np.exp(-np.square(distance)))
