"""Thresholds on a signal as it is, without shadow models (Shokri et al. 2021): the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading, Signal


def all_but_confidence(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the loss and every attribution summary; confidence ranks a model's records as its loss does."""
    return [(signal,) for signal in signals if signal.name != "confidence"]


@attack("threshold", reads=all_but_confidence)
def threshold(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score −signal where members are low, +signal where they are high."""
    ((signal, values),) = readings
    return values if signal.members == "high" else -values
