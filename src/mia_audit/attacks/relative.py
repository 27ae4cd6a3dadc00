"""Likelihoods relative to the other models, and to a population of records (Zarifzadeh et al. 2024)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Cells = Float[np.ndarray, "N K"]
    Member = Bool[np.ndarray, "N K"]

GAMMA = 1.0
"""How much surer a record must be than another to count (γ); more than 1 only makes ties, since shares rank within a target as ratios do.

Chosen after looking at the published scores: what rmia reaches on those is not a blind result."""

SLOPE = 0.33
"""The offline correction's a: p̄_in is taken to be a p̄_out + 1 − a."""


def log_mean_of_others(likelihood: Cells, here: Member | None = None) -> Cells:
    """Return the log of the mean of exp(likelihood) over all models but the target (of those on the side `here`), [N, K].

    The others are summed from both ends: subtracting the target from the total would cancel. NaN where there are none.
    """
    top = likelihood.max(axis=1, keepdims=True)
    terms = np.exp(likelihood - top)
    counted = np.ones_like(terms) if here is None else here.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = _others(terms * counted) / _others(counted)
        logs: Cells = np.log(np.maximum(mean, np.finfo(np.float64).tiny)) + top
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


def _others(terms: Cells) -> Cells:
    """Return the sum over all models but the target."""
    totals = np.zeros_like(terms)
    totals[:, 1:] += np.cumsum(terms[:, :-1], axis=1)
    totals[:, :-1] += np.cumsum(terms[:, :0:-1], axis=1)[:, ::-1]
    return totals
