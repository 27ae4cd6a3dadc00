"""One classifier for all records, trained on the shadow models' signals to recognise members (Shokri et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.design import NO_MODEL, left_out

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from sklearn.linear_model import LogisticRegression

    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading, Signal


def together(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read all signals at once."""
    return [tuple(signals)] if signals else []


@attack("shadow-classifier", reads=together, several=True, repeatable=False, pairwise=["none"])
def shadow_classifier(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by the logit of a logistic regression on the standardised signals, fitted to all other models."""
    from sklearn.linear_model import LogisticRegression

    features = np.stack([reading.scaled.T for reading in readings], axis=-1)  # [K, N, S]
    features -= features.mean(axis=(0, 1))
    features /= np.maximum(features.std(axis=(0, 1)), np.finfo(np.float64).tiny)
    models, records, size = features.shape
    labels, partners = member.T, left_out(member)
    classifier = LogisticRegression(solver="newton-cholesky", tol=1e-7, warm_start=True)
    if pairs is not None:
        return _of_pairs(classifier, features, labels, pairs)
    scores = np.empty((models, records))
    for target in range(models):
        shown = np.ones((models, records), dtype=bool)
        shown[target] = False
        if partners is not None:
            further = np.flatnonzero(partners[:, target] != NO_MODEL)
            shown[partners[further, target], further] = False
        classifier.fit(features[shown].reshape(-1, size), labels[shown])
        scores[target] = classifier.decision_function(features[target])
    return scores.T


def _of_pairs(
    classifier: LogisticRegression, features: Float[np.ndarray, "K N S"], labels: Bool[np.ndarray, "K N"], pairs: Pairs
) -> Float[np.ndarray, "N P"]:
    """Score each pair's target without the second model, by one Newton step from the classifier that was fitted to all other models.

    At that classifier's optimum, the gradient of the loss without the second model is minus the contribution of that
    model. The step is exact up to the third derivatives of the loss, and saves a fit for every pair.
    """
    models, records, size = features.shape
    rows = np.concatenate([features, np.ones((models, records, 1))], axis=2)
    penalty = np.diag([*[1 / classifier.C] * size, 0.0])
    scores = np.empty((records, len(pairs)), order="F")
    for target in np.unique(pairs.target):
        others = np.arange(models) != target
        classifier.fit(features[others].reshape(-1, size), labels[others].ravel())
        coefficients = np.concatenate([classifier.coef_[0], classifier.intercept_])
        p = 1 / (1 + np.exp(-(rows @ coefficients)))
        gradients = np.einsum("kn,kns->ks", p - labels, rows)
        curvatures = np.einsum("kn,kns,knt->kst", p * (1 - p), rows, rows, optimize=True)
        whole = curvatures[others].sum(axis=0) + penalty
        for column in np.flatnonzero(pairs.target == target):
            left = pairs.left[column]
            moved = coefficients + np.linalg.solve(whole - curvatures[left], gradients[left])
            scores[:, column] = rows[target] @ moved
    return scores
