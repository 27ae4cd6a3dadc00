"""The same forest grown to its leaves: it has its training records by heart (Patel et al. 2020, section 6.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explain.black_boxes.catalogue import black_boxes

if TYPE_CHECKING:
    import numpy as np

DEPTH = 60


@black_boxes.register("forest-overfitted")
def forest_overfitted(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of 50 trees of depth 60."""
    from mia_audit.explain.black_boxes.values import forest_values

    return forest_values(records, labels, DEPTH, seed)
