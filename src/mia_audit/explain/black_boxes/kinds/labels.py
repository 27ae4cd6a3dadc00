"""The records' own labels, as if an unknown black box had given them (Patel et al. 2020 explain reviews in this way)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explain.black_boxes.catalogue import black_boxes

if TYPE_CHECKING:
    import numpy as np


@black_boxes.register("labels")
def labels(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return ±1."""
    from mia_audit.explain.black_boxes.values import of_labels

    return of_labels(labels, classes)
