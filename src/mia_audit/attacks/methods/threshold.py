"""Thresholds on a raw signal, without shadow models (Shokri et al. 2021): the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.design import of_targets
from mia_audit.signals.columns import Columns
from mia_audit.signals.name import all_but

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading

NARROW = 0.01
"""Smallest range of scores, as a share of the largest score, at which float32 keeps enough digits."""


@attack(
    "threshold", reads=all_but("confidence"), learns=False, pairwise=["none"]
)  # a model's confidence ranks its records as its loss does
def threshold(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by −signal if members are low, by +signal if they are high. Ranks replace scores if float32 would create ties."""
    (reading,) = readings
    values, high = reading.prepared(Columns.stored, scaled=False), reading.signal.members == "high"
    if not _fits(values):
        return of_targets(_ranks(values if high else -values), pairs)
    scores: Float[np.ndarray, "N K"] = of_targets(values, pairs).astype(np.float32)
    return scores if high else np.negative(scores, out=scores)


def _fits(scores: Float[np.ndarray, "N K"]) -> bool:
    """Return whether float32, in which scores are stored, represents these scores, of either sign, and their differences."""
    room, low, high = np.finfo(np.float32), float(scores.min()), float(scores.max())
    if low == high:
        return True
    largest, least = max(-low, high), max(low, -high)
    if least <= 0:  # scores lie on both sides of 0, or one is 0
        least = min(np.abs(column).min(where=column != 0, initial=np.inf) for column in scores.T)
    return bool(least > room.tiny and largest < room.max and high - low > NARROW * largest)


def _ranks(scores: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    from scipy.stats import rankdata

    ranks: Float[np.ndarray, "N K"] = rankdata(scores, axis=0)
    return ranks
