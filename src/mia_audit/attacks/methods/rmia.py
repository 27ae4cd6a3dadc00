"""Robust membership inference (Zarifzadeh et al. 2024): a record's likelihood under the target, relative to the other models.

`base` scores by this ratio; `rmia` and `rmia-offline` compare it with the ratios of a population or, without one, of the
target's non-members (equations 2 to 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.design import NO_MODEL, Pairs, left_out, of_targets, opposite_values
from mia_audit.errors import UserError
from mia_audit.sections import Section
from mia_audit.signals.name import Columns, columns_of, losses, slices

if TYPE_CHECKING:
    from mia_audit.attacks.design import Leaving, Partners
    from mia_audit.signals.name import Cells, Member, Reading

    Reference = Callable[[Cells, slice, Leaving], Cells]


GAMMA = 1.0
"""γ, the factor by which a record's ratio must exceed another's.

A larger γ only adds ties, because shares rank like ratios. It was chosen on the published scores, so results of rmia on
those scores are not blind.
"""

SLOPE = 0.33
"""Coefficient a of the offline correction, which estimates p̄_in by a p̄_out + 1 − a."""

SLOPES = np.linspace(0, 1, 11)
"""Values of the coefficient a that are tried in tuning."""

CANCELLED = 1e-6
"""If a subtraction leaves less than this share of a sum, the sum is computed anew."""

ROWS = 1 << 12
"""Number of cells summed anew at a time."""


class Compared(Section):
    """The keys of attacks that compare records with a population."""

    population: dict[str, str] = Field(default_factory=dict)
    """A file per loss (`loss`, `loss_t2` …) with its values, z × models, on records z that no model was trained on.

    If unset, z are the target's non-members.
    """


class Offline(Section):
    """The keys of `rmia-offline`."""

    offline_a: Annotated[float, Field(ge=0, le=1)] | Literal["tuned"] = SLOPE
    """Coefficient a of offline RMIA's estimate p̄_in = a p̄_out + 1 − a; `tuned`: for each target, the value with which
    the attack on another model works best.
    """


@attack("base", reads=losses, learns=False, pairwise=["none"])
def base(readings: Sequence[Reading], member: Member, likelihood: str, pairs: Pairs | None = None) -> Cells:
    """Score ℓ_t − log of the mean of exp ℓ over the other models, with ℓ = −loss, the log probability of the label (γ = 1)."""
    (reading,) = readings
    return relative(reading, pairs or left_out(member), lambda log_p, _, some: log_mean_of_others(log_p, leaving=some))


@attack("rmia", reads=losses, options=(Compared,), pairwise=["none"])
def online(
    readings: Sequence[Reading],
    member: Member,
    likelihood: str,
    population: Mapping[str, Cells] | None = None,
    pairs: Pairs | None = None,
) -> Cells:
    """Score by the share of z with r_x ≥ γ r_z, ties ½, where r = p_t / p̄ and p̄ is the mean over the other models.

    z are the population, or else the target's non-members.
    """
    (reading,) = readings
    ratio = relative(reading, pairs or left_out(member), lambda log_p, _, some: log_mean_of_others(log_p, leaving=some))
    compared = _population(population, reading)
    if pairs is None and compared is not None:
        of_z = log_mean_of_others(compared, leaving=_partners_of(compared, left_out(member)))
        return share_dominated(ratio, member, of_z=compared - of_z)
    return _dominated(ratio, member, pairs)


@attack("rmia-offline", reads=losses, options=(Compared, Offline), pairwise=["none"])
def offline(
    readings: Sequence[Reading],
    member: Member,
    likelihood: str,
    offline_a: float | Literal["tuned"] = SLOPE,
    population: Mapping[str, Cells] | None = None,
    pairs: Pairs | None = None,
) -> Cells:
    """Score as `rmia` does, with p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record."""
    (reading,) = readings
    partners, slope = left_out(member), np.full(member.shape[1], 0.0 if offline_a == "tuned" else offline_a)
    if offline_a == "tuned":
        slope = tuned_slopes(-_losses(reading)[:], member, partners)
    slope = slope if pairs is None else slope[pairs.target]
    ratio = relative(
        reading, pairs or partners, lambda log_p, rows, some: log_reference(log_p, member[rows], slope, some)
    )
    compared = _population(population, reading)
    if pairs is None and compared is not None:
        nobody = np.zeros(compared.shape, dtype=bool)
        of_z = log_reference(compared, nobody, slope, _partners_of(compared, partners))
        return share_dominated(ratio, member, of_z=compared - of_z)
    return _dominated(ratio, member, pairs)


def _population(population: Mapping[str, Cells] | None, reading: Reading) -> Cells | None:
    """Return the population's log probabilities for a loss, [Z, K], or None if no population is given."""
    losses_of_z = (population or {}).get(reading.signal.name)
    return None if losses_of_z is None else -losses_of_z


def _partners_of(population: Cells, partners: Partners | None) -> Partners | None:
    """Return the further models to leave out of a population's means: the targets' partners, if they are the same for all records."""
    if partners is None or (partners != partners[:1]).any():
        return None
    return np.broadcast_to(partners[0], population.shape)


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
    if not reading.signal.is_loss:
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
        logs: Cells = np.where(number > 0, totals - np.log(number), np.nan)
    return logs


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


def log_reference(
    likelihood: Cells, member: Member, slope: float | np.ndarray = SLOPE, leaving: Leaving = None
) -> Cells:
    """Return the log of p̄ = ½[(1 + a) p̄_out + (1 − a)], from the other models that did not train on the record, [N, K].

    `slope` is a: one number, or one for each target, [K], or for each pair, [P].
    """
    out = np.exp(log_mean_of_others(likelihood, ~member, leaving))
    return _log_of_reference(out, slope)


def _log_of_reference(out: np.ndarray, slope: float | np.ndarray) -> np.ndarray:
    reference: np.ndarray = np.log(np.maximum(((1 + slope) * out + (1 - slope)) / 2, np.finfo(np.float64).tiny))
    return reference


def tuned_slopes(likelihood: Cells, member: Member, partners: Partners | None = None) -> np.ndarray:
    """Return for every target the coefficient a, one of `SLOPES`, with which an attack on the next model has the largest AUC, [K].

    That attack uses the out models among the remaining models; the target's outputs and membership are not used.
    """
    from scipy.stats import rankdata

    models = member.shape[1]
    outside = (~member).astype(np.float64)
    weighted = np.exp(likelihood) * outside
    total, number = weighted.sum(axis=1), outside.sum(axis=1)
    slopes = np.empty(models)
    for target in range(models):
        pseudo = (target + 1) % models
        left = [target, pseudo]
        rest, count = total - weighted[:, left].sum(axis=1), number - outside[:, left].sum(axis=1)
        known = np.ones(len(member), dtype=bool)
        if partners is not None:
            further = partners[:, [target]]
            known &= further[:, 0] != pseudo
            rest = rest - opposite_values(weighted, further)[0][:, 0]
            count = count - opposite_values(outside, further)[0][:, 0]
        known &= count > 0
        here = member[known, pseudo]
        if here.all() or not here.any():
            slopes[target] = SLOPE
            continue
        mean = np.maximum(rest[known], 0) / count[known]
        ratios = likelihood[known, pseudo][:, None] - _log_of_reference(mean[:, None], SLOPES)
        slopes[target] = SLOPES[np.argmax(rankdata(ratios, axis=0)[here].sum(axis=0))]  # rank sums order as AUCs do
    return slopes


def share_dominated(log_ratio: Cells, member: Member, gamma: float = GAMMA, of_z: Cells | None = None) -> Cells:
    """Return the share of each target's non-members z with r_x ≥ γ r_z, [N, K], by one sort per target; NaN where r_x is NaN.

    If `of_z` has the log ratios of a population, [Z, K], z are the records of that population. Ties count ½. This
    includes a record that is itself one of the z: if it counted 1, it would tie with the members just above it; if it
    counted 0, with those just below it. With γ = 1 the share has the ratio's ROC curve.
    """
    scores = np.full(log_ratio.shape, np.nan, order="F")
    for target in range(log_ratio.shape[1]):
        ratio, outside = log_ratio[:, target], ~member[:, target]
        known = ~np.isnan(ratio)
        population = np.sort(ratio[outside & known] if of_z is None else of_z[:, target])
        least = ratio[known] - np.log(gamma)
        below = np.searchsorted(population, least, side="left") + np.searchsorted(population, least, side="right")
        scores[known, target] = below / max(2 * len(population), 1)
    return scores
