"""Findings of an audit, from metrics per target: estimates, attacks, and differences over the same targets.

Target k has the same training set in every setting of a group, so two attacks, or two settings, are compared on the same
splits. Imports nothing heavy: the files of `report.figures` import this, and the workflow imports those.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.design import RECORDS
from mia_audit.errors import UserError

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.evaluation.intervals import OverTargets, Within
    from mia_audit.report.spec import AuditedSetting

CHANNELS = ("outputs", "explanations", "both", "other")
"""The kinds of information that an attack reads."""


@dataclass(frozen=True)
class Estimate:
    """Mean over targets with standard deviation (n − 1) and interval; a single target has only the interval over its records."""

    mean: float
    sd: float
    low: float
    high: float
    targets: int
    future: tuple[float, float] = (math.nan, math.nan)
    """Prediction interval for one further target; NaN if it was not requested."""

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any]) -> Estimate:
        """Read `numbers`, as answer.json has them."""
        known = (numbers[name] for name in ("mean", "low", "high"))
        mean, low, high = (math.nan if number is None else float(number) for number in known)
        return cls(mean, math.nan, low, high, 1)

    @property
    def numbers(self) -> dict[str, float | None]:
        """The mean and the ends of its interval, null where unknown."""
        ends = {"mean": self.mean, "low": self.low, "high": self.high}
        return {name: None if math.isnan(end) else float(end) for name, end in ends.items()}

    @property
    def below(self) -> float:
        """Distance of the interval's lower end from the mean; 0 for a single target."""
        return 0.0 if math.isnan(self.low) else self.mean - self.low

    @property
    def above(self) -> float:
        """Distance of the interval's upper end from the mean; 0 for a single target."""
        return 0.0 if math.isnan(self.high) else self.high - self.mean

    def equivalence(self, margin: float, confidence: float) -> float:
        """Return the p of two one-sided tests that a difference lies within ± margin; `confidence` is the interval's level."""
        from scipy.special import stdtrit

        from mia_audit.evaluation.intervals import two_one_sided

        if math.isnan(self.low):
            return math.nan
        error = (self.high - self.low) / 2 / float(stdtrit(self.targets - 1, (1 + confidence) / 2))
        return two_one_sided(self.mean, error, self.targets - 1, margin)

    def excludes(self, value: float) -> bool:
        """Whether the interval does not contain `value`."""
        return self.low > value or self.high < value

    def as_rate(self) -> Estimate:
        """Return the estimate and its interval clipped to [0, 1]."""
        mean, low, high, *future = (
            value if math.isnan(value) else min(max(value, 0.0), 1.0)
            for value in (self.mean, self.low, self.high, *self.future)
        )
        return replace(self, mean=mean, low=low, high=high, future=(future[0], future[1]))


def estimate(values: Sequence[float] | np.ndarray, confidence: float, comparisons: int = 1) -> Estimate:
    """Estimate the mean of independent values by Student's t, with a Bonferroni correction for `comparisons` intervals.

    The models' accuracies are such values; metrics of attacks are not (`estimate_over`).
    """
    from scipy.special import stdtrit

    values = np.asarray(values, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, math.nan, math.nan, math.nan, len(values))
    sd = float(values.std(ddof=1))
    half = float(stdtrit(len(values) - 1, 1 - (1 - confidence) / comparisons / 2)) * sd / math.sqrt(len(values))
    return Estimate(mean, sd, mean - half, mean + half, len(values))


FLOOR = 0.3
"""The largest of .25, .3, .35 and .43 at which simulated intervals rarely covered more than 97 %; benchmarks/seeds.py checks it on others."""


def mean_over_seeds(values: Sequence[Estimate], confidence: float) -> Estimate:
    """Return the mean over seeds with Student's interval; `targets` is the number of seeds. One seed keeps its interval.

    Few seeds may agree by chance, so the interval is never narrower than `FLOOR` times that of targets within seeds.
    """
    if len(values) == 1:
        return replace(values[0], sd=math.nan, targets=1)
    over = estimate([value.mean for value in values], confidence)
    squares = (((value.high - value.low) / 2) ** 2 for value in values if not math.isnan(value.high))
    half = max((over.high - over.low) / 2, FLOOR * math.sqrt(sum(squares)) / len(values))
    return replace(over, low=over.mean - half, high=over.mean + half)


def estimate_over(over: OverTargets, confidence: float, comparisons: int = 1) -> Estimate:
    """Estimate a metric of an attack whose targets are one another's shadow models."""
    return Estimate(over.mean, over.sd, *over.interval(confidence, comparisons), over.count, over.future(confidence))


@dataclass(frozen=True)
class Leak:
    """One attack on one setting with its metrics per target, chosen among `tried` attacks."""

    attack: str
    signal: str
    likelihood: str
    targets: np.ndarray
    auc: np.ndarray
    tpr: np.ndarray
    """By target, the TPR at the headline FPR; NaN where it is not resolvable."""
    tried: int
    confidence: float
    without: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The metrics `auc` and `tpr` of every target (rows) without each model (columns); see `OverTargets`."""
    sizes: tuple[float, float] = (math.nan, math.nan)
    """Numbers of members and non-members of a target."""
    within: Mapping[str, Within] = field(default_factory=dict)
    """For a single target: the intervals of `auc` and `tpr` over its records."""
    rivals: tuple[Leak, ...] = ()
    """The attacks, this one among them, of which this has the largest mean AUC; empty if it was not chosen by that."""
    by_first: Leak | None = None
    """The same attack by as many models as the audit's smallest setting has, if this setting has more."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Attack, signal and likelihood."""
        return self.attack, self.signal, self.likelihood

    def over(self, metric: str) -> OverTargets:
        """Return `auc` or `tpr` over targets."""
        from mia_audit.evaluation.intervals import OverTargets

        silence = OverTargets(self.auc, self.without.get("auc"), *self.sizes).silent()
        values, without, within = getattr(self, metric), self.without.get(metric), self.within.get(metric)
        return OverTargets(values, without, *self.sizes, silence=silence, is_auc=metric == "auc", within=within)

    @cached_property
    def auc_estimate(self) -> Estimate:
        """AUC over targets, corrected for the choice among its rivals."""
        return self._estimate("auc")

    @cached_property
    def tpr_estimate(self) -> Estimate:
        """TPR at the headline FPR over targets, corrected for the choice among its rivals by their AUCs."""
        return self._estimate("tpr")

    def _estimate(self, metric: str) -> Estimate:
        from mia_audit.evaluation.selection import after_selection

        plain = estimate_over(self.over(metric), self.confidence)
        if len(self.rivals) < 2 or math.isnan(plain.mean):
            return plain.as_rate()
        other = None if metric == "auc" else self.over(metric)
        found = after_selection([rival.over("auc") for rival in self.rivals], self.confidence, other)
        moved = found.mean - plain.mean
        future = (plain.future[0] + moved, plain.future[1] + moved)
        return replace(plain, mean=found.mean, low=found.low, high=found.high, future=future).as_rate()

    def excess(self, metric: str) -> float:
        """Return by how much its choice among its rivals is estimated to raise the mean of `auc` or `tpr`."""
        known: Estimate = getattr(self, f"{metric}_estimate")
        return self.over(metric).mean - known.mean

    @property
    def beats_guessing(self) -> bool:
        """Whether the interval of the AUC lies above ½."""
        return not silence(self.auc_estimate)


SILENT, WORSE, ALONE = "not distinguishable from guessing", "worse than guessing", "one target, no interval"


def silence(auc: Estimate) -> str:
    """Say why an AUC shows no leak; empty if its interval lies above ½."""
    if math.isnan(auc.low):
        return ALONE
    return "" if auc.low > 0.5 else WORSE if auc.high < 0.5 else SILENT


def chosen(attacks: Sequence[Leak]) -> Leak:
    """Return the attack with the largest mean AUC, with the others, and those over which they were chosen, as its rivals."""
    rivals = tuple(rival for leak in attacks for rival in leak.rivals or (leak,))
    return replace(max(attacks, key=lambda leak: float(leak.auc.mean())), rivals=rivals)


def difference(first: Leak, second: Leak, metric: str = "auc") -> Estimate:
    """Return first − second over the targets that both have, corrected for the choice of both; UserError if they have none in common.

    Of two settings with different numbers of models, the larger one is attacked by the first models alone.
    """
    some, others = _by_as_many(first, second)
    shared, left, right = np.intersect1d(some.targets, others.targets, return_indices=True)
    if not len(shared):
        raise UserError(
            f"metrics of {first.attack} and {second.attack} have no target in common; run the evaluation again"
        )
    gap = some.over(metric).only(left).minus(others.over(metric).only(right))
    plain = estimate_over(gap, first.confidence)
    return _corrected(plain, first, second, metric) if gap.values.any() else plain  # else one attack, chosen twice


def independent_difference(first: Leak, second: Leak, metric: str = "auc") -> Estimate:
    """Return first − second of two data sets, whose targets have nothing in common, by as many models."""
    sides = [leak.over(metric) for leak in _by_as_many(first, second)]
    plain = welch([(side.mean, side.error, side.count) for side in sides], first.confidence)
    return _corrected(plain, first, second, metric)


def _corrected(plain: Estimate, first: Leak, second: Leak, metric: str) -> Estimate:
    """Move a difference by what the choice of both attacks is estimated to add to it (benchmarks/selection.py)."""
    moved = second.excess(metric) - first.excess(metric)
    low, high = plain.future[0] + moved, plain.future[1] + moved
    return replace(plain, mean=plain.mean + moved, low=plain.low + moved, high=plain.high + moved, future=(low, high))


def welch(sides: Sequence[tuple[float, float, int]], confidence: float) -> Estimate:
    """Return the difference of two independent means, each with its standard error and count (Welch 1947).

    `targets` is the smaller count; with a count of 1 there is no interval.
    """
    from scipy.special import stdtrit

    (first, _, _), (second, _, _) = sides
    gap, fewest = first - second, min(count for _, _, count in sides)
    error = math.hypot(*(one for _, one, _ in sides))
    if fewest < 2 or math.isnan(error):
        return Estimate(gap, math.nan, math.nan, math.nan, fewest)
    shares = (one**4 / (count - 1) for _, one, count in sides)
    half = float(stdtrit(error**4 / sum(shares), (1 + confidence) / 2)) * error if error else 0.0
    return Estimate(gap, math.nan, gap - half, gap + half, fewest)


def _by_as_many(first: Leak, second: Leak) -> tuple[Leak, Leak]:
    if len(first.targets) == len(second.targets):
        return first, second
    return first.by_first or first, second.by_first or second


@dataclass(frozen=True)
class NullControl:
    """The attacks on one setting, evaluated against a permuted membership."""

    intervals: int
    holding: int
    strongest: float
    """The largest mean AUC of these attacks: the strongest of so many attacks reaches it by chance."""
    headline: dict[str, Estimate]
    """By channel, the null control of the strongest attack."""
    sound: bool
    """Whether every headline interval contains ½ at a level of 99.9 %, corrected for the audit's number of intervals."""


@dataclass(frozen=True)
class LowerBound:
    """The lower bound on ε that follows from all attacks on a setting together."""

    epsilon: float
    delta: float
    method: str
    attacks: int
    """Number of attacks for which the bound is corrected."""


@dataclass(frozen=True)
class Worth:
    """The guarantee, ε at δ, that a guarantee for records implies for a person with `records` of them; ε is inf if there is none."""

    records: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Finding:
    """The results of one setting."""

    setting: AuditedSetting
    leaks: dict[str, list[Leak]]
    """The attacks by channel, the strongest first; a channel without attacks has no key."""
    train_accuracy: Estimate | None
    test_accuracy: Estimate | None
    shadows: pl.DataFrame | None
    """The last epoch of every shadow's training; None where nothing was trained."""
    null: NullControl | None
    bound: LowerBound
    aggregate: str = RECORDS
    """How persons' scores were aggregated from those of their records, if membership was drawn by person; all findings here use it."""
    worth: tuple[Worth, ...] = ()
    """What a guarantee per record means for persons with several records, if it is known whose records they are."""
    mask_coverage: float | None = None
    """The share of the trained parameters whose noise a mask scales; None where that is not known, or there is no mask."""
    others: dict[str, dict[str, list[Leak]]] = field(default_factory=dict)
    """The attacks by aggregate other than `aggregate` (`none` for records), then by channel; empty if the unit is the record."""

    learned: bool = True
    """Whether the models are better than guessing on their own training records, as far as that is known."""

    @property
    def by_person(self) -> bool:
        """Whether membership was drawn by person."""
        return self.aggregate != RECORDS

    @property
    def promised(self) -> Worth:
        """The guarantee that the lower bound may not exceed: if membership was drawn by person, that of the person with the most records."""
        if self.by_person and self.worth:
            return self.worth[-1]
        epsilon = min(float(self.setting.epsilon), guarantee(self).get("epsilon_spent", math.inf))
        return Worth(1, epsilon, self.bound.delta)

    @cached_property
    def strongest(self) -> dict[str, Leak]:
        """The strongest attack by channel, chosen among all on it."""
        return {channel: chosen(attacks) for channel, attacks in self.leaks.items()}

    @property
    def leaking(self) -> dict[str, Leak]:
        """The strongest attack by channel, where it beats guessing."""
        return {channel: leak for channel, leak in self.strongest.items() if leak.beats_guessing}

    @property
    def chief(self) -> Leak:
        """The attack with the largest mean AUC on any channel."""
        return chosen(list({leak.key: leak for attacks in self.leaks.values() for leak in attacks}.values()))


@dataclass(frozen=True)
class Findings:
    """The results of all settings, in the order of the spec."""

    fpr: float | None
    """The smallest FPR that every target of every setting resolves."""
    settings: list[Finding]
    confidence: float = 0.95

    def groups(self, only: tuple[str, str] | None = None) -> dict[tuple[str, str], list[Finding]]:
        """Return the settings by dataset × architecture: all of them, or only one."""
        grouped: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.settings:
            if only in (None, finding.setting.group):
                grouped.setdefault(finding.setting.group, []).append(finding)
        return grouped


def reference(group: Sequence[Finding]) -> Finding | None:
    """Return the reference setting of a group: the first one without any protection."""
    return next((one for one in group if not one.setting.private and not one.setting.no_guarantee), None)


def accuracy_difference(first: Finding, second: Finding, confidence: float) -> Estimate | None:
    """Return the difference first − second in test accuracy over the shadows of both; None where one was not trained."""
    if first.shadows is None or second.shadows is None:
        return None
    both = first.shadows.join(second.shadows, on="shadow", suffix="_second").drop_nulls(
        ["test_accuracy", "test_accuracy_second"]
    )
    if both.is_empty():
        return None
    left, right = (both[name].to_numpy().astype(np.float64) for name in ("test_accuracy", "test_accuracy_second"))
    return estimate(left - right, confidence)


def shadow_estimate(shadows: pl.DataFrame | None, name: str, confidence: float) -> Estimate | None:
    """Estimate the mean of a column of training.parquet over shadows, a rate for accuracies; None where it is unknown."""
    if shadows is None or name not in shadows.columns:
        return None
    values = shadows[name].drop_nulls().to_numpy().astype(np.float64)
    found = estimate(values, confidence) if len(values) else None
    return found.as_rate() if found and name.endswith("accuracy") else found


def fpr_columns(metrics: pl.DataFrame) -> dict[float, str]:
    """Map the FPRs of a metrics table to their columns, smallest first."""
    names = (re.fullmatch(r"tpr_at_fpr_([0-9.e+-]+)", name) for name in metrics.columns)
    return dict(sorted((float(match[1]), match[0]) for match in names if match))


def noise_mask(finding: Finding) -> str:
    """Return the source of the mask that scales the noise; empty if noise is not scaled."""
    if finding.shadows is None or "noise_mask" not in finding.shadows.columns:
        return ""
    return str(finding.shadows["noise_mask"][0]).replace("none", "")


def guarantee(finding: Finding) -> dict[str, Any]:
    """Return the privacy accounting of the shadow model that spent the most; empty without DP."""
    if finding.shadows is None or not finding.setting.private:
        return {}
    worst = finding.shadows.sort("epsilon", descending=True).row(0, named=True)
    if finding.setting.claimed:
        return {"epsilon_claimed": worst["epsilon"], "records": worst["records"]}
    kept, who = ["noise_multiplier", "sampling", "sampling_rate", "steps", "records"], "record"
    if worst.get("unit") == "person":
        kept, who = [*kept, "unit", "persons", "records_per_person"], "person with all of their records"
    spent = {"epsilon_spent": worst["epsilon"], "epsilon_spent_rdp": worst["epsilon_rdp"]}
    return spent | {name: worst[name] for name in kept} | {"adjacency": f"add or remove one {who}"}


TITLES = {"outputs": "Outputs", "explanations": "Explanations", "both": "Both together", "other": "Signals"}
"""Headings of the channels."""
SUBJECTS = {
    "outputs": "the outputs",
    "explanations": "the explanations",
    "both": "both together",
    "other": "the signals",
}
