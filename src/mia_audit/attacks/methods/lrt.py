"""Likelihood ratio attacks on one signal.

LiRA on the confidence (Carlini et al. 2022); the same on an attribution's variance, L1 and L2 norm (Huang et al. 2024)
and on its maximum norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.ratios import RATIOS
from mia_audit.attacks.signal import logarithm

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading, Signal


def only_confidence(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the confidence."""
    return [(signal,) for signal in signals if signal.name == "confidence"]


def every(summary: str) -> Callable[[Sequence[Signal]], list[tuple[Signal, ...]]]:
    """Read the summary of every explanation there is."""
    return lambda signals: [(signal,) for signal in signals if signal.summary == summary]


@attack("loss-lira", reads=only_confidence, variances=RATIOS)
@attack("var-lrt", reads=every("variance"), variances=RATIOS)
@attack("l1-lrt", reads=every("l1"), variances=RATIOS)
@attack("l2-lrt", reads=every("l2"), variances=RATIOS)
@attack("linf-lrt", reads=every("linf"), variances=RATIOS)
def online(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out); positive signals enter by their logarithm, being heavy-tailed."""
    (reading,) = readings
    values = logarithm(reading) if reading.signal.scale == "positive" else reading.values
    return RATIOS[variance](values, member)
