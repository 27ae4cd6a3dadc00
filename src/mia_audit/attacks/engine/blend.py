"""A weighted sum of two log ratios: `types` is better on large pools, `hierarchical` on small ones.

The weights are those of a logistic regression of membership on both scores, with shadow models as pseudo-targets. For
every fold of targets the pseudo-targets are models of other folds, scored without that fold. So the weights of a target
do not depend on its membership, and no threshold on the size of the pool is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.type_ratio import Evidence
from mia_audit.signals.columns import Columns, columns_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.attacks.engine.type_ratio import Fold
    from mia_audit.attacks.engine.types import Types
    from mia_audit.signals.name import Cells, Member

    Other = Callable[..., Cells]
    Features = Float[np.ndarray, "n F"]

ENOUGH_CELLS, MOST_CELLS = 4_000, 100_000
"""Limits on the scores from which weights are learned: folds are added until the first number is reached; each fold gives at most the second."""

LARGEST = 5.0
"""Log ratios are clipped at this value when the weights are learned: a model trained differently from the rest has many large, wrong ratios."""

STEPS = 15
"""Number of Newton steps of the regression."""

RIDGE = 1.0
"""The regression's penalty on squared coefficients; the log likelihood is a sum over scores, not a mean."""


def blended_ratio(signals: Sequence[Cells | Columns], member: Member, *, other: Other) -> Cells:
    """Score records by a weighted sum of two log ratios, by types and by `other`, [N records, K models], in float32.

    `other` scores targets from signals and membership, without reading a target's own membership: all of them or, with
    `kept`, some.
    """
    columns = [columns_of(signal) for signal in signals]
    scores = other(columns, member)
    evidence = Evidence(columns, member)
    pair_types: dict[tuple[int, ...], Types] = {}
    for place, fold in enumerate(evidence.folds):
        of_types, of_other = PseudoScores.of(evidence, columns, member, place, pair_types, other).weights()
        by_types = evidence.scores(fold)
        for column, one in zip(fold, by_types.T, strict=True):
            scores[:, column] = of_types * one + of_other * scores[:, column]
        del by_types, one  # free the memory before the next fold
    return scores.astype(np.float32, copy=False)


@dataclass(frozen=True)
class PseudoScores:
    """Scores of models that serve as pseudo-targets for one fold of targets: one row per model and record."""

    features: Features
    """The log ratios by types and by `other`."""
    labels: Bool[np.ndarray, " n"]

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        signals: Sequence[Columns],
        member: Member,
        place: int,
        learned: dict[tuple[int, ...], Types],
        other: Other,
    ) -> PseudoScores:
        """Score pseudo-targets for the fold at `place`. `learned` caches the types by the two folds left out, because both folds use them."""
        folds = evidence.folds
        unseen = folds[place]
        rest = np.setdiff1d(np.arange(member.shape[1]), unseen)
        pseudo_targets = list(_pseudo_targets(folds, place, len(member)))
        kept = np.searchsorted(rest, np.concatenate([pseudo for _, pseudo in pseudo_targets]))
        others = other([signal.of(rest) for signal in signals], member[:, rest], kept=kept)
        features, labels, start = [], [], 0
        for second, pseudo in pseudo_targets:
            both = tuple(sorted((place, second)))
            if both not in learned:
                learned[both] = evidence.without(np.union1d(unseen, folds[second]), strictly=False)
            by_types = evidence.pseudo_scores(learned[both], pseudo, unseen)
            features.append(_features(by_types, others[:, start : start + len(pseudo)]))
            labels.append(member[:, pseudo].ravel())
            start += len(pseudo)
        return cls(np.concatenate(features), np.concatenate(labels))

    def weights(self) -> Float[np.ndarray, " F"]:
        """Return the weights learned from all pseudo-targets."""
        return blend_weights(self.features, self.labels)


def _features(by_types: Cells, by_other: Cells) -> Features:
    features: Features = np.stack([by_types.ravel(), by_other.ravel()], axis=1).astype(np.float64)
    return features


def _pseudo_targets(folds: Sequence[Fold], place: int, records: int) -> Iterator[tuple[int, Fold]]:
    """Yield the indices of other folds, each with the models that serve as pseudo-targets, until there are enough scores.

    In cyclic order, the fold half the cycle away comes first, so that two folds choose each other and share the types
    learned without both.
    """
    number, cells = len(folds), 0
    for step in sorted(range(1, number), key=lambda step: (abs(2 * step - number), step)):
        if cells >= ENOUGH_CELLS:
            return
        second = (place + step) % number
        pseudo = folds[second][: -(-MOST_CELLS // records)]
        yield second, pseudo
        cells += len(pseudo) * records


def blend_weights(features: Features, labels: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " F"]:
    """Return a non-negative weight for every feature, by logistic regression. If no feature predicts the labels, all weights are 1.

    Rows with NaN are left out.
    """
    known = np.isfinite(features).all(axis=1)
    features, labels = np.clip(features[known], -LARGEST, LARGEST), labels[known]
    weights, kept = np.zeros(features.shape[1]), np.arange(features.shape[1])
    while len(kept) and len(labels):
        coefficients = _regression(features[:, kept], labels)
        if (coefficients > 0).all():
            weights[kept] = coefficients
            return weights
        kept = np.delete(kept, np.argmin(coefficients))
    return np.ones(features.shape[1])


def _regression(features: Features, labels: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " F"]:
    """Return the coefficients of a logistic regression with an intercept, by Newton's method."""
    design = np.column_stack([features - features.mean(axis=0), np.ones(len(features))])
    coefficients = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-design @ coefficients))
        hessian = (design * (chance * (1 - chance))[:, None]).T @ design + RIDGE * np.eye(len(coefficients))
        coefficients -= np.linalg.solve(hessian, design.T @ (chance - labels) + RIDGE * coefficients)
    return coefficients[:-1]
