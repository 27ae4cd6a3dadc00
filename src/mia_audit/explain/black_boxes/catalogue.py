"""The registry of black boxes that a study can build from a pool; the workflow's own models need no entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mia_audit.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float, Int

    Make = Callable[
        [Float[np.ndarray, "m n"], Int[np.ndarray, " m"], int, int],  # records, labels, classes, seed
        Float[np.ndarray, "m C"],
    ]

black_boxes: Registry[Make] = Registry("black box", "mia_audit.explain.black_boxes.kinds", "-", eager=True)
"""Black boxes by name: functions of records, labels, the number of classes and a seed, which return the values on the records."""
