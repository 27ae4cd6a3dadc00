"""Black boxes that are made from the records and labels of a pool (Patel et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explain.black_boxes.catalogue import black_boxes

if TYPE_CHECKING:
    import numpy as np

DEPTH, FULL_DEPTH = 10, 60
"""Depth of the trees in Patel et al. 2020, and a depth that lets trees grow fully."""

TREES = 500
"""Number of trees in Patel et al. 2020; the other forests have a tenth of them, and take a tenth of the time."""


@black_boxes.register("forest")
def forest(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of a random forest of limited depth, trained on the explained records."""
    from mia_audit.explain.black_boxes.values import forest_values

    return forest_values(records, labels, DEPTH, seed)


@black_boxes.register("forest-500")
def forest_500(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of a random forest of limited depth with the published number of trees."""
    from mia_audit.explain.black_boxes.values import forest_values

    return forest_values(records, labels, DEPTH, seed, TREES)


@black_boxes.register("forest-overfitted")
def forest_overfitted(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of a forest of fully grown trees, which memorises its training records (section 6.5)."""
    from mia_audit.explain.black_boxes.values import forest_values

    return forest_values(records, labels, FULL_DEPTH, seed)


@black_boxes.register("labels")
def labels(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return ±1 by the records' own labels, as if these were the output of an unknown black box."""
    from mia_audit.explain.black_boxes.values import of_labels

    return of_labels(labels, classes)
