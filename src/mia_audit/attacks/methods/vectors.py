"""A likelihood ratio of attributions themselves: of their direction, a vector over its L1 norm, and of that norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.engine.vectors import hierarchical_vector_ratio, vector_ratio
from mia_audit.signals.name import VECTOR

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
    """Score by log p(x | in) − log p(x | out) of the direction, plus that of the norm; signals other than vectors count as norms."""
    score: np.ndarray = np.zeros(member.shape)
    for reading in readings:
        if reading.signal.is_vector:
            (vectors,) = reading.queries
            models = slice(None) if reading.models is None else reading.models
            score += OF_DIRECTIONS[likelihood](vectors[:, models], member)
        else:
            ratio = RATIOS[likelihood]
            score += ratio.scores(reading.prepared(ratio.prepare), member)
    return score
