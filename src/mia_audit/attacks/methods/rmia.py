"""Robust membership inference (Zarifzadeh et al. 2024): a record's likelihood under the target, relative to the other models.

`base` scores by this ratio; `rmia` and `rmia-offline` compare it with the ratios of a population or, without one, of the
target's non-members (equations 2 to 4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.design import NO_MODEL, Pairs, left_out, of_targets, opposite_values
from mia_audit.errors import UserError
from mia_audit.signals.name import Columns, columns_of, named, slices

if TYPE_CHECKING:
    from mia_audit.attacks.design import Leaving
    from mia_audit.signals.name import Cells, Member, Reading

    Reference = Callable[[Cells, slice, Leaving], Cells]


GAMMA = 1.0
"""γ, the factor by which a record's ratio must exceed another's.

A larger γ only adds ties, because shares rank like ratios. It was chosen on the published scores, so results of rmia on
those scores are not blind.
"""

SLOPE = 0.33
"""Coefficient a of the offline correction, which estimates p̄_in by a p̄_out + 1 − a."""

CANCELLED = 1e-6
"""If a subtraction leaves less than this share of a sum, the sum is computed anew."""

ROWS = 1 << 12
"""Number of cells summed anew at a time."""


@attack("base", reads=named("loss"), learns=False, pairwise=["none"])
def base(readings: Sequence[Reading], member: Member, likelihood: str, pairs: Pairs | None = None) -> Cells:
    """Score ℓ_t − log of the mean of exp ℓ over the other models, with ℓ = −loss, the label's log probability (BASE, Lassila et al. 2025)."""
    (reading,) = readings
    return relative(reading, pairs or left_out(member), lambda log_p, _, some: log_mean_of_others(log_p, leaving=some))


@attack("rmia", reads=named("loss"), pairwise=["none"])
def online(readings: Sequence[Reading], member: Member, likelihood: str, pairs: Pairs | None = None) -> Cells:
    """Score by the share of the target's non-members z with r_x ≥ γ r_z, ties ½, where r = p_t / p̄, p̄ the mean of the others."""
    (reading,) = readings
    ratio = relative(reading, pairs or left_out(member), lambda log_p, _, some: log_mean_of_others(log_p, leaving=some))
    return _dominated(ratio, member, pairs)


@attack("rmia-offline", reads=named("loss"), pairwise=["none"])
def offline(readings: Sequence[Reading], member: Member, likelihood: str, pairs: Pairs | None = None) -> Cells:
    """Score as `rmia` does, with p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record."""
    (reading,) = readings
    ratio = relative(
        reading, pairs or left_out(member), lambda log_p, rows, some: log_reference(log_p, member[rows], some)
    )
    return _dominated(ratio, member, pairs)


def _dominated(log_ratio: Cells, member: Member, pairs: Pairs | None) -> Cells:
    """Return `share_dominated` or, for pairs, the ratio itself, which has the same ROC curve if γ = 1, and needs no sort."""
    return share_dominated(log_ratio, member) if pairs is None else log_ratio


def relative(reading: Reading, leaving: Leaving, reference: Reference) -> Cells:
    """Return the targets' log probability of the label relative to a reference, [N, K] or, for pairs, [N, P].

    `reference` computes the reference for a block of records from their log probabilities, [B, K], their places and
    `leaving` of them.
    """
    losses_of = _losses(reading)
    pairs = leaving if isinstance(leaving, Pairs) else None
    records, models = losses_of.shape
    ratio = np.empty((records, models if pairs is None else len(pairs)), order="F")
    for rows in slices(0, records, models):
        log_p = -losses_of[rows]
        some = leaving if leaving is None or isinstance(leaving, Pairs) else leaving[rows]
        ratio[rows] = of_targets(log_p, pairs) - reference(log_p, rows, some)
    return ratio


def _losses(reading: Reading) -> Columns:
    """Return the values of a loss; UserError for a signal that is not a loss."""
    if reading.signal.name != "loss":
        raise UserError(f"signal '{reading.signal.name}': rmia and base compare likelihoods, and read only losses")
    columns: Columns = reading.prepared(columns_of, scaled=False)
    return columns


def log_mean_of_others(likelihood: Cells, here: Member | None = None, leaving: Leaving = None) -> Cells:
    """Return the log of the mean of exp(likelihood) over all models but the target, [N, K]; `here` restricts it to some models.

    `leaving` are further models to leave out, from `left_out`, or pairs, which give [N, P]. Without `leaving` the sums
    over the others are accumulated from both ends, as logarithms. Subtraction of the target from the total would cancel
    digits, and the others' exponentials would vanish beside a far likelier target. NaN where there are no others.
    """
    counted = np.ones(likelihood.shape, dtype=bool) if here is None else here
    terms = np.where(counted, likelihood, -np.inf)
    number = counted.sum(axis=1, keepdims=True) - of_targets(counted, leaving if isinstance(leaving, Pairs) else None)
    if leaving is None:
        totals = np.full_like(terms, -np.inf)
        totals[:, 1:] = np.logaddexp.accumulate(terms[:, :-1], axis=1)
        totals[:, :-1] = np.logaddexp(totals[:, :-1], np.logaddexp.accumulate(terms[:, :0:-1], axis=1)[:, ::-1])
    else:
        number = number - _of_further(counted, leaving)
        totals = _log_sum_without(terms, leaving)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(number > 0, totals - np.log(number), np.nan))


def _of_further(values: np.ndarray, leaving: Leaving) -> np.ndarray:
    """Return the values of the further models that are left out, 0 where there is none, in float64."""
    if isinstance(leaving, Pairs):
        return values[:, leaving.left].astype(np.float64)
    assert leaving is not None
    return opposite_values(values.astype(np.float64), leaving)[0]


def _log_sum_without(terms: Cells, leaving: Leaving) -> Cells:
    """Return log Σ exp over all models but the target and its further model; where subtraction would cancel, add up the others anew."""
    largest = terms.max(axis=1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    sizes = np.exp(terms - largest)
    total = sizes.sum(axis=1, keepdims=True)
    targets = leaving.target if isinstance(leaving, Pairs) else np.arange(terms.shape[1])
    rest = total - sizes[:, targets]
    rest -= _of_further(sizes, leaving)
    cancelled = rest <= CANCELLED * total
    with np.errstate(divide="ignore"):
        sums: Cells = np.log(np.where(cancelled, 1, rest)) + largest
    rows, columns = np.nonzero(cancelled)
    for start in range(0, len(rows), ROWS):
        row, column = rows[start : start + ROWS], columns[start : start + ROWS]
        further = leaving.left[column] if isinstance(leaving, Pairs) else leaving[row, column]  # type: ignore[index]
        others, place = terms[row], np.arange(len(row))
        others[place, targets[column]] = -np.inf
        others[place[further != NO_MODEL], further[further != NO_MODEL]] = -np.inf
        sums[row, column] = np.logaddexp.reduce(others, axis=1)
    return sums


def log_reference(likelihood: Cells, member: Member, leaving: Leaving = None) -> Cells:
    """Return the log of p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record, [N, K]."""
    out = np.exp(log_mean_of_others(likelihood, ~member, leaving))
    return np.asarray(np.log(np.maximum(((1 + SLOPE) * out + (1 - SLOPE)) / 2, np.finfo(np.float64).tiny)))


def share_dominated(log_ratio: Cells, member: Member, gamma: float = GAMMA) -> Cells:
    """Return the share of each target's non-members z with r_x ≥ γ r_z, [N, K], by one sort per target; NaN where r_x is NaN.

    Ties count ½. This includes a record that is itself one of the z: if it counted 1, it would tie with the members just above it; if it
    counted 0, with those just below it. With γ = 1 the share has the ratio's ROC curve.
    """
    scores = np.full(log_ratio.shape, np.nan, order="F")
    for target in range(log_ratio.shape[1]):
        ratio, outside = log_ratio[:, target], ~member[:, target]
        known = ~np.isnan(ratio)
        compared = np.sort(ratio[outside & known])
        least = ratio[known] - np.log(gamma)
        below = np.searchsorted(compared, least, side="left") + np.searchsorted(compared, least, side="right")
        scores[known, target] = below / max(2 * len(compared), 1)
    return scores
