"""A likelihood ratio of attributions themselves: of their direction, a vector over its L1 norm, and of that norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.engine.vectors import blended_vector_ratio, hierarchical_vector_ratio, vector_ratio
from mia_audit.signals.name import VECTOR, columns_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

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


def _directions(reading: Reading) -> Float[np.ndarray, "N K m"]:
    (vectors,) = reading.queries
    return vectors if reading.models is None else vectors[:, reading.models]
