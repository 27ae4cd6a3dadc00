"""The likelihood ratios of one signal without in models: how unlikely its value is among the out models.

`-offline` is one-sided, the paper's form (Carlini et al. 2022, section VI-D); `-offline-two-sided` is −log p(x | out),
the form of their code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.engine.likelihood import LIKELIHOODS, offline_ratio
from mia_audit.attacks.methods.lrt import on_every_signal
from mia_audit.signals.columns import columns_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading


@on_every_signal("-offline", LIKELIHOODS, LIKELIHOODS)
def one_sided(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by −log P(an out model's value is more like a member's than x)."""
    (reading,) = readings
    return offline_ratio(reading.prepared(columns_of), member, likelihood, reading.signal.members, pairs)


@on_every_signal("-offline-two-sided", LIKELIHOODS, LIKELIHOODS)
def two_sided(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by −log p(x | out)."""
    (reading,) = readings
    return offline_ratio(reading.prepared(columns_of), member, likelihood, "either", pairs)
