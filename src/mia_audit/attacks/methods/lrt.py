"""Likelihood ratios of one signal, in and out models: p(x | in) against p(x | out).

LiRA on the confidence (Carlini et al. 2022), the same on an attribution's variance, L1 and L2 norm (Huang et al. 2024)
and maximum norm, and `lrt` on any other signal. Positive signals are heavy-tailed and enter by their logarithm;
the `-raw` forms take them as they are, and `loss-lira-raw` the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.ratios import RATIOS
from mia_audit.attacks.signal import every, named, others

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading


@attack("loss-lira", reads=named("confidence"), variances=RATIOS)
@attack("var-lrt", reads=every("variance"), variances=RATIOS)
@attack("l1-lrt", reads=every("l1"), variances=RATIOS)
@attack("l2-lrt", reads=every("l2"), variances=RATIOS)
@attack("linf-lrt", reads=every("linf"), variances=RATIOS)
@attack("lrt", reads=others, variances=RATIOS)
def online(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out)."""
    (reading,) = readings
    return RATIOS[variance](reading.scaled, member)


@attack("loss-lira-raw", reads=named("loss"), variances=RATIOS)
@attack("var-lrt-raw", reads=every("variance"), variances=RATIOS)
@attack("l1-lrt-raw", reads=every("l1"), variances=RATIOS)
@attack("l2-lrt-raw", reads=every("l2"), variances=RATIOS)
@attack("linf-lrt-raw", reads=every("linf"), variances=RATIOS)
@attack("lrt-raw", reads=others, variances=RATIOS)
def raw(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score by the same ratio on the signal as it is."""
    (reading,) = readings
    return RATIOS[variance](reading.values, member)
