"""The likelihood of the record under the target, relative to the other models (`base`: the ratio inside RMIA, with γ = 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.relative import log_likelihood, log_mean_of_others
from mia_audit.attacks.signal import named

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading


@attack("base", reads=named("loss"), learns=False)
def base(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score ℓ_t − log of the mean of exp ℓ over the other models, with ℓ = −loss, the log probability of the label."""
    (reading,) = readings
    likelihood = log_likelihood(reading)
    scores: Float[np.ndarray, "N K"] = likelihood - log_mean_of_others(likelihood)
    return scores
