"""Attacks on attributions themselves: on their direction, a vector over its L1 norm, and on that norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.design import recognise
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.engine.type_ratio import MOST_CELLS, folds_of
from mia_audit.attacks.engine.vectors import (
    Blocks,
    Stack,
    blended_vector_ratio,
    hierarchical_vector_ratio,
    vector_ratio,
)
from mia_audit.seeds import generator
from mia_audit.signals.name import VECTOR, columns_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from sklearn.ensemble import HistGradientBoostingClassifier

    from mia_audit.attacks.engine.vectors import Vectors
    from mia_audit.signals.name import Reading, Signal

OF_DIRECTIONS = {
    "blend": hierarchical_vector_ratio,
    "hierarchical": hierarchical_vector_ratio,
    "pooled": vector_ratio,
}
"""The ratio of the direction, by the likelihood of the norm."""


def vectors_and_norms(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read every explanation's vector, with its L1 norm."""
    by_name = {signal.name: signal for signal in signals}
    vectors = [signal for signal in signals if signal.is_vector]
    return [(signal, by_name[f"{signal.name.removesuffix(VECTOR)}l1"]) for signal in vectors]


@attack("vector-lrt", reads=vectors_and_norms, likelihoods=OF_DIRECTIONS, several=True, repeatable=False, vectors=True)
def vector_lrt(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str
) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out) of directions, plus that of norms; `blend` weights those of one norm by what they tell.

    Signals other than vectors count as norms.
    """
    norms = [reading for reading in readings if not reading.signal.is_vector]
    directions = [_directions(reading) for reading in readings if reading.signal.is_vector]
    if likelihood == "blend" and len(norms) == 1 and directions:
        return blended_vector_ratio(norms[0].prepared(columns_of), directions, member)
    ratio, score = RATIOS[likelihood], np.zeros(member.shape)
    for norm in norms:
        score += ratio.scores(norm.prepared(ratio.prepare), member)
    for vectors in directions:
        score += OF_DIRECTIONS[likelihood](vectors, member)
    return score


@attack("vector-classifier", reads=vectors_and_norms, several=True, repeatable=False, vectors=True)
def vector_classifier(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str
) -> Float[np.ndarray, "N K"]:
    """Score by gradient boosting that learned from shadow models' vectors and norms to recognise members.

    A quarter of the models are scored, on half of the records, by what was learned from the other models on the other
    half, with the features that they have without that quarter. So neither a target's membership enters, nor, where
    every record is in the same number of models, what the others of its record say of it.
    """
    (directions,) = [_directions(one) for one in readings if one.signal.is_vector]
    values = Stack(directions, [one.prepared(columns_of) for one in readings if not one.signal.is_vector])
    records, models = member.shape
    first = generator("halves of the records", records).permutation(records) < records // 2
    scores = np.empty(member.shape, order="F")
    for fold in folds_of(recognise(member), models):
        rest = np.setdiff1d(np.arange(models), fold)
        learned = [_learned(Stack(values, models=rest), member[:, rest], half) for half in (~first, first)]
        for rows, features in _features(values, member):
            for half, classifier in zip((first, ~first), learned, strict=True):
                inside = np.flatnonzero(half[rows])
                asked = features[fold][:, inside]
                odds = classifier.decision_function(asked.reshape(-1, asked.shape[2]))
                scores[np.ix_(rows.start + inside, fold)] = odds.reshape(len(fold), -1).T
    return scores


def _learned(
    values: Stack, member: Bool[np.ndarray, "N K"], half: Bool[np.ndarray, " N"]
) -> HistGradientBoostingClassifier:
    """Return the classifier of members from all models, on half of the records or as many as give `MOST_CELLS` / 2 rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    some = np.zeros(len(half), dtype=bool)
    some[np.flatnonzero(half)[: MOST_CELLS // 2 // member.shape[1]]] = True
    parts = [(features[:, some[rows]], member[rows][some[rows]].T) for rows, features in _features(values, member)]
    features, labels = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    classifier = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, early_stopping=False, random_state=0)
    classifier.fit(features.reshape(-1, features.shape[2]), labels.ravel())
    return classifier


def _features(values: Stack, member: Bool[np.ndarray, "N K"]) -> Iterator[tuple[slice, Float[np.ndarray, "K B F"]]]:
    """Yield, block by block, what the other models say of each value: its ratio, the distances from the middle of the record's
    in and out means, these means' differences, and the products of both.
    """
    ratio = hierarchical_vector_ratio(values, member)
    for block in Blocks(values, member):
        every = np.maximum(block.inside + block.outside, 1)
        shift = block.shift * block.both
        distance = block.values + shift * (block.inside - block.outside) / every / 2
        parts = (ratio[block.rows].T[:, :, None], distance, shift, distance * shift)
        yield block.rows, np.concatenate(parts, axis=2, dtype=np.float32)


def _directions(reading: Reading) -> Vectors:
    (vectors,) = reading.queries
    return vectors if reading.models is None else Stack(vectors, models=reading.models)
