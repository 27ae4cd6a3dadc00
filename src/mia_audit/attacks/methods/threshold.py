"""Thresholds on a signal as it is, without shadow models (Shokri et al. 2021): the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.signal import all_but

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading


@attack(
    "threshold", reads=all_but("confidence"), learns=False
)  # a model's confidence ranks its records as its loss does
def threshold(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score −signal where members are low, +signal where they are high."""
    (reading,) = readings
    return reading.values if reading.signal.members == "high" else -reading.values
