"""A random forest of limited depth, as in Patel et al. 2020, trained on the records that it is explained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explain.black_boxes.catalogue import black_boxes

if TYPE_CHECKING:
    import numpy as np

DEPTH = 10


@black_boxes.register("forest")
def forest(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of 50 trees of depth 10."""
    from mia_audit.explain.black_boxes.values import forest_values

    return forest_values(records, labels, DEPTH, seed)
