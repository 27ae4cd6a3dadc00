"""A blend of the ratio by types with the hierarchical one: types win on large pools, shrunk Gaussians on small ones.

The weights are those of a logistic regression of membership on both scores, with shadow models as pseudo-targets: for every
fold of targets they come from models of other folds, scored without the fold. So the choice between the two likelihoods
reads no target's membership, and needs no threshold on the size of the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.type_ratio import Evidence

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.attacks.engine.type_ratio import Fold
    from mia_audit.signals.name import Cells, Member

    Other = Callable[[Sequence[Cells], Member], Cells]
    Features = Float[np.ndarray, "n F"]

PSEUDO_CELLS = 100_000
"""Scores of pseudo-targets that the weights are learned from, about: with more they are known better than they need be."""

LARGEST = 5.0
"""No log ratio counts as more in learning the weights: a model that is trained otherwise than the rest has many large and wrong ones."""

STEPS = 15
"""Newton's steps of the regression."""

RIDGE = 1.0
"""Its penalty on the squares of its coefficients, in scores."""


def blended_ratio(signals: Sequence[Cells], member: Member, other: Other) -> Cells:
    """Score records by a weighted sum of two log ratios, by types and by `other`, [N records, K models].

    `other` scores all targets from signals and membership, without reading a target's own. NaN where its scores are.
    """
    evidence = Evidence(signals, member)
    folds = evidence.folds
    whole = other(signals, member)
    scores = np.empty(member.shape, dtype=np.float32, order="F")
    types = {(fold,): evidence.without(folds[fold]) for fold in range(len(folds))}
    for fold, targets in enumerate(folds):
        rest = np.setdiff1d(np.arange(member.shape[1]), targets)
        others = other([signal[:, rest] for signal in signals], member[:, rest])
        features, labels = [], []
        for second, pseudo in _pseudo_targets(folds, fold, len(member)):
            pair = tuple(sorted((fold, second)))
            if pair not in types:
                types[pair] = evidence.without(np.union1d(folds[fold], folds[second]), strictly=False)
            by_types = evidence.pseudo_scores(types[pair], pseudo, targets)
            features.append(_features(by_types, others[:, np.searchsorted(rest, pseudo)]))
            labels.append(member[:, pseudo].ravel())
        weights = blend_weights(np.concatenate(features), np.concatenate(labels))
        by_types = evidence.scores(types[fold,], targets)
        scores[:, targets] = weights[0] * by_types + weights[1] * whole[:, targets]
    return scores


def _features(by_types: Cells, by_other: Cells) -> Features:
    features: Features = np.stack([by_types.ravel(), by_other.ravel()], axis=1).astype(np.float64)
    return features


def _pseudo_targets(folds: Sequence[Fold], fold: int, records: int) -> Iterator[tuple[int, Fold]]:
    """Yield other folds with the models of each that are pseudo-targets, until there are enough cells.

    The fold half-way round comes first: two folds then need the same types, those learned without both.
    """
    number = len(folds)
    needed = -(-PSEUDO_CELLS // records)
    for step in sorted(range(1, number), key=lambda step: (abs(2 * step - number), step)):
        if needed <= 0:
            return
        second = (fold + step) % number
        yield second, folds[second][:needed]
        needed -= len(folds[second])


def blend_weights(features: Features, labels: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " F"]:
    """Return a weight of at least 0 for every feature, by logistic regression; all equal where none predicts the labels.

    Rows with NaN are left out.
    """
    known = ~np.isnan(features).any(axis=1)
    features, labels = np.clip(features[known], -LARGEST, LARGEST), labels[known]
    weights, kept = np.zeros(features.shape[1]), np.arange(features.shape[1])
    while len(kept):
        found = _regression(features[:, kept], labels)
        if (found > 0).all():
            weights[kept] = found
            return weights
        kept = np.delete(kept, np.argmin(found))
    return np.ones(features.shape[1])


def _regression(features: Features, labels: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " F"]:
    """Return the coefficients of a logistic regression with an intercept, by Newton's method."""
    design = np.column_stack([features - features.mean(axis=0), np.ones(len(features))])
    found = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-design @ found))
        hessian = (design * (chance * (1 - chance))[:, None]).T @ design + RIDGE * np.eye(len(found))
        found -= np.linalg.solve(hessian, design.T @ (chance - labels) + RIDGE * found)
    return found[:-1]
