"""Robust membership inference (Zarifzadeh et al. 2024): the likelihood of the record under the target, relative to the other models.

`base` is that ratio by itself; `rmia` and `rmia-offline` compare it with the ratios of a population, the target's
non-members (equations 2 to 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.errors import UserError
from mia_audit.signals.name import named

if TYPE_CHECKING:
    from mia_audit.signals.name import Cells, Member, Reading


GAMMA = 1.0
"""How much surer a record must be than another to count (γ); more than 1 only makes ties, since shares rank within a target as ratios do.

Chosen after looking at the published scores: what rmia reaches on those is not a blind result."""

SLOPE = 0.33
"""The offline correction's a: p̄_in is taken to be a p̄_out + 1 − a."""


@attack("base", reads=named("loss"), learns=False)
def base(readings: Sequence[Reading], member: Member, likelihood: str) -> Cells:
    """Score ℓ_t − log of the mean of exp ℓ over the other models, with ℓ = −loss, the log probability of the label (γ = 1)."""
    (reading,) = readings
    log_p = log_likelihood(reading)
    scores: Cells = log_p - log_mean_of_others(log_p)
    return scores


@attack("rmia", reads=named("loss"))
def online(readings: Sequence[Reading], member: Member, likelihood: str) -> Cells:
    """Score by the share of the target's non-members z with r_x ≥ γ r_z, where r = p_t / p̄ and p̄ is the mean over the other models."""
    (reading,) = readings
    log_p = log_likelihood(reading)
    return share_dominated(log_p - log_mean_of_others(log_p), member)


@attack("rmia-offline", reads=named("loss"))
def offline(readings: Sequence[Reading], member: Member, likelihood: str) -> Cells:
    """Score likewise with p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record."""
    (reading,) = readings
    log_p = log_likelihood(reading)
    return share_dominated(log_p - log_reference(log_p, member), member)


def log_likelihood(reading: Reading) -> Cells:
    """Return the log probability of the label, −loss; a signal that is no loss is a UserError."""
    if reading.signal.name != "loss":
        raise UserError(f"signal '{reading.signal.name}': rmia and base compare likelihoods, and read the loss alone")
    return -reading.values


def log_mean_of_others(likelihood: Cells, here: Member | None = None) -> Cells:
    """Return the log of the mean of exp(likelihood) over all models but the target (of those on the side `here`), [N, K].

    The others are added up from both ends, and as logarithms: subtracting the target from the total would cancel, and
    next to a target that is far likelier than all others their exponentials would vanish. NaN where there are none.
    """
    counted = np.ones(likelihood.shape, dtype=bool) if here is None else here
    terms = np.where(counted, likelihood, -np.inf)
    totals = np.full_like(terms, -np.inf)
    totals[:, 1:] = np.logaddexp.accumulate(terms[:, :-1], axis=1)
    totals[:, :-1] = np.logaddexp(totals[:, :-1], np.logaddexp.accumulate(terms[:, :0:-1], axis=1)[:, ::-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Cells = totals - np.log(counted.sum(axis=1, keepdims=True) - counted)
    return logs


def log_reference(likelihood: Cells, member: Member, slope: float = SLOPE) -> Cells:
    """Return the log of p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record, [N, K]."""
    out = np.exp(log_mean_of_others(likelihood, ~member))
    reference: Cells = np.log(((1 + slope) * out + (1 - slope)) / 2)
    return reference


def share_dominated(log_ratio: Cells, member: Member, gamma: float = GAMMA) -> Cells:
    """Return the share of each target's non-members z with r_x ≥ γ r_z, [N, K], by one sort per target; NaN where the ratio is."""
    scores = np.full(log_ratio.shape, np.nan, order="F")
    for target in range(log_ratio.shape[1]):
        ratio, outside = log_ratio[:, target], ~member[:, target]
        known = ~np.isnan(ratio)
        population = np.sort(ratio[outside & known])
        below = np.searchsorted(population, ratio - np.log(gamma), side="right")
        scores[known, target] = below[known] / max(len(population), 1)
    return scores
