"""A likelihood ratio of several signals together: does an explanation add to what the confidence reveals?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.engine.joint import JOINT_RATIOS, PAIRWISE
from mia_audit.signals.columns import columns_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading, Signal


def confidence_and_l1(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the confidence together with the L1 norm of every explanation; methods that name signals read any other set."""
    confidence = [signal for signal in signals if signal.name == "confidence"]
    return [(*confidence, signal) for signal in signals if confidence and signal.summary == "l1"]


@attack("joint-lrt", reads=confidence_and_l1, likelihoods=JOINT_RATIOS, several=True, pairwise=PAIRWISE)
def joint_lrt(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out) of vectors of signals with covariances pooled over records."""
    ratio, signals = JOINT_RATIOS[likelihood], [reading.prepared(columns_of) for reading in readings]
    return ratio(signals, member) if pairs is None else ratio(signals, member, pairs)
