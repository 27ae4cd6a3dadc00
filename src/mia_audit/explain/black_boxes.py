"""The registry of black boxes that a study can build from a pool (Patel et al. 2020); the workflow's own models need no entry.

Their values are in [−1, 1]: a column per class, or one column if there are two classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.registry import Registry

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Num

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


def of_labels(labels: Int[np.ndarray, " q"], classes: int) -> Float[np.ndarray, "q C"]:
    """Return 1 for a record's own class and −1 for the others."""
    return of_probabilities(np.eye(classes)[labels])


def of_estimator(estimator: Any) -> Callable[[Num[np.ndarray, "q n"]], np.ndarray]:
    """Return a fitted scikit-learn classifier as a black box, with values ±1 if it has no probabilities."""
    if hasattr(estimator, "predict_proba"):
        return lambda records: of_probabilities(estimator.predict_proba(np.asarray(records).reshape(len(records), -1)))
    kinds = estimator.classes_

    def values(records: Num[np.ndarray, "q n"]) -> np.ndarray:
        predicted = estimator.predict(np.asarray(records).reshape(len(records), -1))
        return of_labels(np.searchsorted(kinds, predicted), len(kinds))

    return values


def of_logits(logits: Float[np.ndarray, "q K"]) -> Float[np.ndarray, "q C"]:
    """Return the values of a model with these logits."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return of_probabilities(shifted / shifted.sum(axis=1, keepdims=True))


def predicted_labels(values: Float[np.ndarray, "m C"]) -> Float[np.ndarray, "m C"]:
    """Return ±1 by the class of the largest value, as of a black box that returns a label and nothing more (section 2)."""
    if values.shape[1] == 1:
        return np.where(values > 0, 1.0, -1.0)
    return of_labels(values.argmax(axis=1), values.shape[1])


DEPTH, FULL_DEPTH = 10, 60
"""Depth of the trees in Patel et al. 2020, and a depth that lets trees grow fully: such a forest memorises its records (section 6.5)."""

TREES, FEWER_TREES = 500, 50
"""Number of trees in Patel et al. 2020; the other forests have a tenth of them, and take a tenth of the time."""


def forest(depth: int, trees: int = FEWER_TREES, labels_only: bool = False) -> Make:
    """Return a random forest, trained on the explained records: 2p − 1, or ±1 by the labels that it predicts, as the paper's black box."""

    def values(
        records: Float[np.ndarray, "m n"], labels: Int[np.ndarray, " m"], classes: int, seed: int
    ) -> Float[np.ndarray, "m C"]:
        from sklearn.ensemble import RandomForestClassifier

        fitted = RandomForestClassifier(trees, max_depth=depth, random_state=seed % 2**32, n_jobs=1)
        votes = of_estimator(fitted.fit(records, labels))(records)
        return predicted_labels(votes) if labels_only else votes

    return values


black_boxes.register("forest")(forest(DEPTH))
black_boxes.register("forest-500")(forest(DEPTH, TREES))
black_boxes.register("forest-overfitted")(forest(FULL_DEPTH))
black_boxes.register("forest-labels")(forest(DEPTH, labels_only=True))
black_boxes.register("forest-overfitted-labels")(forest(FULL_DEPTH, labels_only=True))

OVERFITTED = {"forest-labels": "forest-overfitted-labels", "forest": "forest-overfitted"}
"""Forests of limited depth, and of fully grown trees in their place."""


@black_boxes.register("labels")
def labels(records: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return ±1 by the records' own labels, as if these were the output of an unknown black box."""
    return of_labels(labels, classes)
