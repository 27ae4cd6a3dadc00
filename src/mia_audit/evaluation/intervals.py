"""Intervals for a future target and for the mean over targets that are one another's shadow models, and a test against guessing.

With h[t] the metric of target t and K targets, the variance of the mean is E[s²]/K + c: s² is the targets' variance,
and c the covariance of two targets' metrics that is due to shared models. Student's t over targets ignores c. No
function of h estimates c without bias (Bengio and Grandvalet 2004, for cross-validation). But c can be estimated from
the changes of targets' metrics when one of their shadow models is left out, because this removes errors that two
targets share. Let d[t, s] be h[t] − (h[t] without model s), minus its mean over s. Two terms are estimated:

- The effects of two targets on each other contribute x, (K − 1)/(K − 2) times the mean of d[t, s] d[s, t] over pairs of
  the few models that are left out in turn.
- A model that is an easy target may also make all others easier. This contributes twice the covariance, over models s,
  of h[s] with the mean over t of d[t, s], minus 2x, because that covariance includes the effects within pairs.

Likelihoods that take long are not repeated. The changes of their metrics without a model are taken to be those of a
quick likelihood (`ratios.STAND_INS`): in simulations intervals hold as often, and are as wide within 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri, stdtr, stdtrit

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.design import RECORDS, Pairs, in_unit, recognise
from mia_audit.attacks.engine.ratios import STAND_INS
from mia_audit.errors import UserError
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Float, Int

    from mia_audit.attacks.catalogue import Attack, AttackRun
    from mia_audit.pools.persons import Persons
    from mia_audit.signals.name import Cells, Member

    Values = Float[np.ndarray, " K"]
    Without = Float[np.ndarray, "K K"]


FEWEST = 4
"""The covariance c is estimated from at least this many models, and from at least this many models left out in turn."""

ENOUGH = 8
"""Largest number of models that are left out in turn. More do not improve intervals (simulated up to 33 models)."""

SILENT = 0.05
"""Smallest p-value of an AUC that is called indistinguishable from guessing."""

WITHOUT = "_without"
"""Suffix of the columns of metrics.parquet that hold a metric without each of the models left out."""


@dataclass(frozen=True)
class Within:
    """The interval of one target's metric over its records, given the models."""

    low: float
    high: float
    confidence: float

    def at(self, confidence: float, comparisons: int) -> tuple[float, float]:
        """Return the interval at another level: its distances on the logit scale are rescaled by the ratio of the normal quantiles."""
        if (confidence, comparisons) == (self.confidence, 1) or not 0 < self.low <= self.high < 1:
            return self.low, self.high
        wider = ndtri(1 - (1 - confidence) / comparisons / 2) / ndtri(1 - (1 - self.confidence) / 2)
        centre, half = (logit(self.high) + logit(self.low)) / 2, (logit(self.high) - logit(self.low)) / 2
        return float(expit(centre - wider * half)), float(expit(centre + wider * half))


@dataclass(frozen=True)
class OverTargets:
    """One metric of one attack on all targets, or the difference of two over the same targets."""

    values: Values
    without: Without | None = None
    """The metric of target t without shadow model s, in row t and column s; NaN if unknown."""
    members: float = math.nan
    non_members: float = math.nan
    """Numbers of scored members and non-members, means over targets."""
    silence: float = 0.0
    """0 if the attack's AUC is above guessing. Otherwise c as a share of sd²/(K − 2), which it is for likelihood ratios."""
    is_auc: bool = False
    """Whether the metric is the AUC. Only its changes are fine enough to estimate the effects of a model on all others."""
    within: Within | None = None
    """The interval over a single target's records, which replaces that over targets."""

    @classmethod
    def from_metrics(cls, metrics: pl.DataFrame, name: str, confidence: float = 0.95) -> OverTargets:
        """Return a metric of the rows of one attack in a metrics table; rows where it is null are left out.

        Rows whose column `{name}_without` is not null are the models that were left out, in the order of that column's
        items. The intervals in the table are over the records of a single target; `confidence` is their level.
        """
        known = metrics.filter(metrics[name].is_not_null()) if metrics[name].null_count() else metrics
        known = known if known["target"].is_sorted() else known.sort("target", maintain_order=True)
        members, non_members = (
            float(known[side].to_numpy().mean()) if side in known.columns and len(known) else math.nan for side in SIDES
        )
        values, within = _values(known, name), None
        if len(known) == 1 and f"{name}_low" in known.columns and known[f"{name}_low"][0] is not None:
            within = Within(known[f"{name}_low"][0], known[f"{name}_high"][0], confidence)
        over = cls(
            values, _square(known, f"{name}{WITHOUT}"), members, non_members, within=within, is_auc=name == "auc"
        )
        if over.is_auc or "auc" not in known.columns:
            return replace(over, silence=over.silent() if over.is_auc else 0.0)
        scored = known.filter(known["auc"].is_not_null())
        auc = cls(_values(scored, "auc"), _square(scored, f"auc{WITHOUT}"), members, non_members)
        return replace(over, silence=auc.silent())

    @property
    def count(self) -> int:
        """The number of targets."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """The mean over targets."""
        return float(self.values.mean()) if self.count else math.nan

    @property
    def sd(self) -> float:
        """The standard deviation over targets (n − 1); NaN for a single one."""
        return float(self.values.std(ddof=1)) if self.count > 1 else math.nan

    def silent(self) -> float:
        """Return `silence` for all metrics of the attack whose AUC this is.

        Without a leak, the variance of the mean is 2 (K − 1)/(K − 2) times that of independent targets if the effects of two
        targets on each other are equal, as those of likelihood ratios are. An attack that hardly depends on single shadow
        models shares less: at most the mean of d² (Cauchy and Schwarz).
        """
        if self.count < 2 or self.above_guessing() <= SILENT:
            return 0.0
        return min(self._changes.largest / self._noise, 1.0) if self._changes and self._noise else 1.0

    @cached_property
    def shared(self) -> float:
        """The covariance c of two targets' metrics, at least 0.

        If no models were left out, or if the attack is indistinguishable from guessing, c is what it is without a leak:
        what all targets learn in common (such as the sign of a shift) hardly changes without one model. This does not
        apply if leaving models out changed no metric. The effects of a model on all others are estimated only if there
        are more than `ENOUGH` models, because with fewer the noise of this estimate would widen the interval.
        """
        changes = self._changes
        if changes is None:
            return self._noise
        if self.silence and changes.largest:
            return self.silence * self._noise
        pairs = changes.within_pairs
        on_all = changes.on_all(self.values) - 2 * pairs if self.is_auc and self.count > ENOUGH else 0.0
        return max(pairs, pairs + on_all, 0.0)

    @cached_property
    def _changes(self) -> _Changes | None:
        return None if self.without is None else _Changes.from_left_out(self.without)

    @property
    def _noise(self) -> float:
        return self.sd**2 / max(self.count - 2, 1)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(self.sd**2 / self.count + self.shared)

    def interval(self, confidence: float, comparisons: int = 1) -> tuple[float, float]:
        """Return the interval of the mean over targets, with Bonferroni's level for `comparisons`.

        For a single target, return the interval over its records.
        """
        if self.count == 1 and self.within:
            return self.within.at(confidence, comparisons)
        return self._around(self.error, confidence, comparisons)

    def future(self, confidence: float) -> tuple[float, float]:
        """Return the prediction interval for the metric of one further target; NaN for a single target."""
        return self._around(math.sqrt(self.sd**2 * (1 + 1 / max(self.count, 1)) + 2 * self.shared), confidence)

    def above_guessing(self) -> float:
        """Return the one-sided p of an AUC above ½ under the null hypothesis of no leak, under which the variance is known.

        With n members and m non-members, the variance of an AUC given the scores is (n + m + 1)/(12 n m) (Mann and
        Whitney 1947; less with ties). With several targets the variance of their mean is twice that of independent
        ones, because they share shadow models. If n and m are not known, Student's t over targets is used, and the
        result is NaN for a single target.
        """
        pairs = self.members * self.non_members
        if self.count < 2 and (not self.count or math.isnan(pairs)):
            return math.nan
        if math.isnan(pairs):
            return float(stdtr(self.count - 1, -self.t(0.5)))
        variance = (2 if self.count > 1 else 1) * (self.members + self.non_members + 1) / (12 * pairs) / self.count
        return float(ndtr((0.5 - self.mean) / math.sqrt(variance)))

    def p_value(self) -> float:
        """Return the two-sided p of a mean of 0, for differences; NaN for a single target."""
        return float(2 * stdtr(self.count - 1, -abs(self.t()))) if self.count > 1 else math.nan

    def equivalence(self, margin: float) -> float:
        """Return the p of two one-sided tests of a difference within ± margin; NaN for a single target."""
        return two_one_sided(self.mean, self.error, self.count - 1, margin) if self.count > 1 else math.nan

    def only(self, places: Sequence[int] | Int[np.ndarray, " k"]) -> OverTargets:
        """Return the metric of some of the targets, by index."""
        chosen_places = np.asarray(places)
        without = None if self.without is None else self.without[np.ix_(chosen_places, chosen_places)]
        return replace(self, values=self.values[chosen_places], without=without)

    def minus(self, other: OverTargets) -> OverTargets:
        """Return the difference over the same targets, in the same order."""
        both = self.without is not None and other.without is not None
        without = self.without - other.without if both else None  # type: ignore[operator]
        silence = max(self.silence, other.silence) if self.silence and other.silence else 0.0
        return OverTargets(self.values - other.values, without, silence=silence, is_auc=self.is_auc and other.is_auc)

    def t(self, value: float = 0.0) -> float:
        """Return the mean's distance from a value, in its standard errors."""
        gap, error = self.mean - value, self.error
        return gap / error if error > 0 else math.copysign(math.inf, gap) if gap else 0.0

    def _around(self, error: float, confidence: float, comparisons: int = 1) -> tuple[float, float]:
        if self.count < 2:
            return math.nan, math.nan
        half = float(stdtrit(self.count - 1, 1 - (1 - confidence) / comparisons / 2)) * error
        return self.mean - half, self.mean + half


SIDES = ("members", "non_members")


def chosen(models: int) -> range:
    """Return the indices of the models that are left out in turn: the first ones, since models are exchangeable."""
    return range(min(models, ENOUGH))


def two_one_sided(mean: float, error: float, freedom: int, margin: float) -> float:
    """Return the p of equivalence within ± margin: the larger of the p of mean ≤ −margin and of mean ≥ margin (Schuirmann 1987).

    It is below α if and only if the 1 − 2α interval lies within the margin, which must be stated before the values are
    seen.
    """
    inside = margin - abs(mean)
    return float(stdtr(freedom, -inside / error)) if error else float(inside <= 0)


def _values(metrics: pl.DataFrame, name: str) -> Values:
    return np.asarray(metrics[name].to_numpy().astype(np.float64))


def _square(metrics: pl.DataFrame, name: str) -> Without | None:
    """Return the metric without each left-out model, as a matrix over all targets. Return None if no model was left out."""
    if name not in metrics.columns:
        return None
    lists = metrics[name].to_list()
    places = [place for place, values in enumerate(lists) if values is not None]
    if not places or any(len(lists[place]) != len(places) for place in places):
        return None
    square = np.full((len(lists), len(lists)), np.nan)
    for place in places:
        square[place, places] = [math.nan if value is None else value for value in lists[place]]
    square[places, places] = metrics[name.removesuffix(WITHOUT)].to_numpy()[
        places
    ]  # a target is not its own shadow model
    return square


@dataclass(frozen=True)
class _Changes:
    """What leaving a model out changes in the metrics of the q targets that are left out in turn, of K."""

    change: Float[np.ndarray, "q q"]
    """d[t, s] of the module's docstring; 0 for t = s."""
    places: Int[np.ndarray, " q"]
    factor: float

    @classmethod
    def from_left_out(cls, without: Without) -> _Changes | None:
        """Compute the changes; None if too few models were left out, or a value is not known."""
        count = len(without)
        places = np.flatnonzero(~np.isnan(np.diagonal(without)))
        left = len(places)
        if count < FEWEST or left < FEWEST:
            return None
        square = without[np.ix_(places, places)]
        change = np.diagonal(square)[:, None] - square
        if np.isnan(change).any():
            return None
        change -= change.sum(axis=1, keepdims=True) / (left - 1)
        np.fill_diagonal(change, 0.0)
        return cls(change, places, ((left - 1) / (left - 2)) ** 2 * (count - 2) / (count - 1))

    def _mean(self, products: Float[np.ndarray, "q q"]) -> float:
        left = len(products)
        return float(products.sum()) / (left * (left - 1)) * self.factor

    @property
    def within_pairs(self) -> float:
        """The estimate of what two targets share by their effects on each other, which may be negative."""
        return self._mean(self.change * self.change.T)

    @property
    def largest(self) -> float:
        """The largest value that `within_pairs` can have for changes of this size."""
        return self._mean(self.change**2)

    def on_all(self, values: Values) -> float:
        """Return twice the covariance of a model's own metric with its mean effect on the others' metrics."""
        effects = self.change.sum(axis=0) / (len(self.change) - 1)
        return 2 * float(np.cov(values[self.places], effects)[0, 1])


Columns = dict[str, list[list[float | None] | None]]
"""Columns of metrics.parquet by name.

For a target that was also left out, they hold its values without each of the others; for all other targets they hold
None.
"""


@dataclass(frozen=True)
class Rescored:
    """Scores of targets, each without one other model, [N records, P pairs], and the pairs (target, model left out)."""

    scores: Cells
    pairs: Pairs
    models: int
    whole: Cells | None = None
    """For a likelihood that stands in for that of the run: its scores with all models, [N, K models]."""


def without_each(
    run: AttackRun,
    readings: Sequence[Reading],
    member: Member,
    scores: Cells,
    fprs: Sequence[float],
) -> Columns:
    """Return the metrics of some targets (`intervals.chosen`), each without every other of these models.

    `scores` are those with all models. The value of a target without itself is None. The result is empty if the attack
    has no scores from so few models, or declares that repeating it takes too long. With a `pairwise` likelihood all pairs
    are scored at once, unless the membership's design requires a further model to be left out; all other attacks are run
    again without each model.
    """
    rescored = scored_without(run, readings, member)
    return {} if rescored is None else metrics_without(rescored, scores, member, fprs)


def quick(attack: str, likelihood: str) -> str:
    """Return the likelihood that stands in for one that takes long, if the attack supports it; else the likelihood itself."""
    instead = STAND_INS.get(likelihood, likelihood)
    return instead if instead in attacks[attack].likelihoods else likelihood


def scored_without(run: AttackRun, readings: Sequence[Reading], member: Member) -> Rescored | None:
    """Return the scores for the metrics of `without_each`, or None if there are none."""
    models = member.shape[1]
    attack = attacks[run.attack]
    likelihood = quick(run.attack, run.likelihood)
    at_once = likelihood in attack.pairwise and recognise(member).independent
    if run.null_control or models < FEWEST or not (at_once or attack.repeatable):
        return None
    pairs = Pairs.among(chosen(models))
    if at_once:
        scores = attack.score(list(readings), member, likelihood, pairs=pairs)
    else:
        try:
            scores = _scored_anew(attack, readings, member, likelihood, pairs)
        except UserError:  # too few models for this likelihood
            return None
    whole = None if likelihood == run.likelihood else attack.score(list(readings), member, likelihood)
    return Rescored(scores, pairs, models, whole)


def metrics_without(
    rescored: Rescored,
    scores: Cells,
    member: Member,
    fprs: Sequence[float],
    persons: Persons | None = None,
    aggregate: str = RECORDS,
) -> Columns:
    """Return the metrics of `rescored` as columns, for scores of records or of persons; `scores` are those of the unit with all models.

    Where a likelihood stood in for that of the run, its changes are added to the metrics of `scores`.
    """
    pairs, models = rescored.pairs, rescored.models

    def judged(values: Cells, targets: np.ndarray) -> dict[str, np.ndarray]:
        return metrics_of_columns(values.astype(np.float32, copy=False), member[:, targets], fprs)

    if persons is not None and aggregate != RECORDS:
        member = persons.gathered(member, "membership")
    metrics = judged(in_unit(rescored.scores, persons, aggregate), pairs.target)
    if rescored.whole is not None:
        left = np.asarray(chosen(models))
        own, whole = (
            judged(values, left) for values in (scores[:, left], in_unit(rescored.whole[:, left], persons, aggregate))
        )
        metrics = {
            name: own[name][pairs.target] + (values - whole[name][pairs.target]) for name, values in metrics.items()
        }
    return {f"{name}{WITHOUT}": per_target(values, pairs, models) for name, values in metrics.items()}


def per_target(values: np.ndarray, pairs: Pairs, models: int) -> list[list[float | None] | None]:
    """Return a metric of pairs as one list per target. The list is None for a target that is not among the models left out."""
    left = len(chosen(models))
    square = np.full((left, left), np.nan)
    square[pairs.target, pairs.left] = values
    rows = ([None if np.isnan(value) else float(value) for value in row] for row in square)
    return [*rows, *[None] * (models - left)]


def _scored_anew(attack: Attack, readings: Sequence[Reading], member: Member, likelihood: str, pairs: Pairs) -> Cells:
    """Return the scores of the pairs' targets, [N, P], by repeating the attack without each left-out model."""
    scores = np.empty((len(member), len(pairs)), order="F")
    for left in np.unique(pairs.left):
        kept = np.delete(np.arange(member.shape[1]), left)
        others = [Reading(reading.signal, reading.queries, kept) for reading in readings]
        without = attack.score(others, _columns(member, kept), likelihood)
        places = np.flatnonzero(pairs.left == left)
        scores[:, places] = without[:, np.searchsorted(kept, pairs.target[places])]
    return scores


def _columns(values: Cells | Member, kept: np.ndarray) -> Any:
    """Return some of the columns, each contiguous."""
    return values.T[kept].T
