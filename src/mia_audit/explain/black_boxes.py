"""The registry of black boxes that a study can build from a pool; the workflow's own models need no entry.

Convert a classifier's outputs to values in [−1, 1]: a column per class, or one column if there are two classes.

Black boxes that are made from the records and labels of a pool (Patel et al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.registry import Registry

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Num

if TYPE_CHECKING:
    Make = Callable[
        [Float[np.ndarray, "m n"], Int[np.ndarray, " m"], int, int],  # records, labels, classes, seed
        Float[np.ndarray, "m C"],
    ]


black_boxes: Registry[Make] = Registry("black box")
"""Black boxes by name: functions of records, labels, the number of classes and a seed, which return the values on the records."""


def of_probabilities(probabilities: Float[np.ndarray, "q K"]) -> Float[np.ndarray, "q C"]:
    """Return 2p − 1 of every class, or only of the second if there are two classes."""
    values = 2 * np.asarray(probabilities, dtype=np.float64) - 1
    return values[:, 1:] if values.shape[1] == 2 else values


def of_margins(probabilities: Float[np.ndarray, "q K"]) -> Float[np.ndarray, "q C"]:
    """Return every class's margin over the best other class, p_c − max p_j, or only that of the second class if there are two."""
    probabilities = np.asarray(probabilities, dtype=np.float64)
    best = np.sort(probabilities, axis=1)
    others = np.where(probabilities == best[:, -1:], best[:, -2:-1], best[:, -1:])
    values = probabilities - others
    return values[:, 1:] if values.shape[1] == 2 else values


def of_labels(labels: Int[np.ndarray, " q"], classes: int) -> Float[np.ndarray, "q C"]:
    """Return 1 for a record's own class and −1 for the others."""
    return of_probabilities(np.eye(classes)[labels])


QUANTITIES = {"probability": of_probabilities, "margin": of_margins}
"""Functions from probabilities to the values that are explained, by the quantity's name."""


def of_estimator(estimator: Any, quantity: str = "probability") -> Callable[[Num[np.ndarray, "q n"]], np.ndarray]:
    """Return a fitted scikit-learn classifier as a black box, with values ±1 if it has no probabilities."""
    convert = QUANTITIES[quantity]
    if hasattr(estimator, "predict_proba"):
        return lambda records: convert(estimator.predict_proba(np.asarray(records).reshape(len(records), -1)))
    kinds = estimator.classes_

    def values(records: Num[np.ndarray, "q n"]) -> np.ndarray:
        predicted = estimator.predict(np.asarray(records).reshape(len(records), -1))
        return of_labels(np.searchsorted(kinds, predicted), len(kinds))

    return values


def of_logits(logits: Float[np.ndarray, "q K"], quantity: str = "probability") -> Float[np.ndarray, "q C"]:
    """Return the values of a model with these logits."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return QUANTITIES[quantity](shifted / shifted.sum(axis=1, keepdims=True))


def forest_values(
    records: Float[np.ndarray, "m n"], labels: Int[np.ndarray, " m"], depth: int, seed: int, trees: int = 50
) -> Float[np.ndarray, "m C"]:
    """Train a random forest on the records and return its values on them."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(trees, max_depth=depth, random_state=seed % 2**32, n_jobs=1).fit(records, labels)
    return of_estimator(forest)(records)


def predicted_labels(values: Float[np.ndarray, "m C"]) -> Float[np.ndarray, "m C"]:
    """Return ±1 by the class of the largest value, as of a black box that returns a label and nothing more (section 2)."""
    if values.shape[1] == 1:
        return np.where(values > 0, 1.0, -1.0)
    return of_labels(values.argmax(axis=1), values.shape[1])


DEPTH, FULL_DEPTH = 10, 60
"""Depth of the trees in Patel et al. 2020, and a depth that lets trees grow fully."""

TREES = 500
"""Number of trees in Patel et al. 2020; the other forests have a tenth of them, and take a tenth of the time."""


@black_boxes.register("forest")
def forest(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of a random forest of limited depth, trained on the explained records."""

    return forest_values(records, labels, DEPTH, seed)


@black_boxes.register("forest-500")
def forest_500(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of a random forest of limited depth with the published number of trees."""

    return forest_values(records, labels, DEPTH, seed, TREES)


@black_boxes.register("forest-overfitted")
def forest_overfitted(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return 2p − 1 of a forest of fully grown trees, which memorises its training records (section 6.5)."""

    return forest_values(records, labels, FULL_DEPTH, seed)


@black_boxes.register("forest-labels")
def forest_labels(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return ±1 by the labels that a random forest of limited depth predicts, the paper's black box."""

    return predicted_labels(forest(records, labels, classes, seed))


@black_boxes.register("forest-overfitted-labels")
def forest_overfitted_labels(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return ±1 by the labels that a forest of fully grown trees predicts (section 6.5)."""

    return predicted_labels(forest_overfitted(records, labels, classes, seed))


OVERFITTED = {"forest-labels": "forest-overfitted-labels", "forest": "forest-overfitted"}
"""Forests of limited depth, and of fully grown trees in their place."""


@black_boxes.register("labels")
def labels(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return ±1 by the records' own labels, as if these were the output of an unknown black box."""

    return of_labels(labels, classes)
