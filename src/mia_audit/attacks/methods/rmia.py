"""Robust membership inference (Zarifzadeh et al. 2024, equations 2 to 4): how many records the record is more surely a member than."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.relative import log_likelihood, log_mean_of_others, log_reference, share_dominated
from mia_audit.attacks.signal import named

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading


@attack("rmia", reads=named("loss"))
def online(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score by the share of the target's non-members z with r_x ≥ γ r_z, where r = p_t / p̄ and p̄ is the mean over the other models."""
    (reading,) = readings
    likelihood = log_likelihood(reading)
    return share_dominated(likelihood - log_mean_of_others(likelihood), member)


@attack("rmia-offline", reads=named("loss"))
def offline(readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], variance: str) -> Float[np.ndarray, "N K"]:
    """Score likewise with p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record."""
    (reading,) = readings
    likelihood = log_likelihood(reading)
    return share_dominated(likelihood - log_reference(likelihood, member), member)
