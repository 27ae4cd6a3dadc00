"""A classifier trained on the shadow models' signals to recognise members (Shokri et al. 2017): one for all records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.design import NONE, left_out

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.signals.name import Reading, Signal


def together(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read all signals at once."""
    return [tuple(signals)] if signals else []


@attack("shadow-classifier", reads=together, several=True, repeatable=False)
def shadow_classifier(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str
) -> Float[np.ndarray, "N K"]:
    """Score by the logit of a logistic regression on the standardised signals, fitted to all other models."""
    from sklearn.linear_model import LogisticRegression

    features = np.stack([reading.scaled.T for reading in readings], axis=-1)  # [K, N, S]
    features -= features.mean(axis=(0, 1))
    features /= np.maximum(features.std(axis=(0, 1)), np.finfo(np.float64).tiny)
    models, records, size = features.shape
    labels, partners = member.T, left_out(member)
    scores = np.empty((models, records))
    classifier = LogisticRegression(warm_start=True, max_iter=1000)
    for target in range(models):
        shown = np.ones((models, records), dtype=bool)
        shown[target] = False
        if partners is not None:
            further = np.flatnonzero(partners[:, target] != NONE)
            shown[partners[further, target], further] = False
        classifier.fit(features[shown].reshape(-1, size), labels[shown])
        scores[target] = classifier.decision_function(features[target])
    return scores.T
