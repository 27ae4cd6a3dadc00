"""What an audit found: the strongest attack per channel, differences over the same targets, what the null control says.

Everything here is computed from metrics per target, so that two attacks, or two settings, are compared on the same
splits: target k has the same training set in every setting of a group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mia_audit.errors import UserError
from mia_audit.evaluation.bounds import lower_bounds
from mia_audit.evaluation.summary import NULL_WIDENING
from mia_audit.report.signals import read_signal

if TYPE_CHECKING:
    from mia_audit.report.results import Results, Setting

ATTACK = ("attack", "signal", "variance")
ALARM = 0.999
"""Level of the intervals by which the null control tells a reader not to rely on an audit."""


@dataclass(frozen=True)
class Estimate:
    """Mean over targets with standard deviation (n − 1) and Student-t interval; NaN where one target says nothing."""

    mean: float
    sd: float
    low: float
    high: float
    targets: int

    @property
    def below(self) -> float:
        """How far the interval reaches below the mean; 0 where one target says nothing."""
        return 0.0 if math.isnan(self.low) else self.mean - self.low

    @property
    def above(self) -> float:
        """How far it reaches above the mean, likewise."""
        return 0.0 if math.isnan(self.high) else self.high - self.mean

    def excludes(self, value: float) -> bool:
        """Whether the interval says that the mean is not `value`."""
        return self.low > value or self.high < value

    def as_rate(self) -> Estimate:
        """Return the same with its interval cut to [0, 1]."""
        low, high = (value if math.isnan(value) else min(max(value, 0.0), 1.0) for value in (self.low, self.high))
        return replace(self, low=low, high=high)


def estimate(
    values: Sequence[float] | np.ndarray, confidence: float, comparisons: int = 1, widening: float = 1.0
) -> Estimate:
    """Estimate the mean over targets; `comparisons` widens the interval so that it holds for the largest of so many (Bonferroni).

    `widening` is a further factor, for targets whose errors go together.
    """
    from scipy.special import stdtrit

    values = np.asarray(values, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean, math.nan, math.nan, math.nan, len(values))
    sd = float(values.std(ddof=1))
    half = float(stdtrit(len(values) - 1, 1 - (1 - confidence) / comparisons / 2)) * sd / math.sqrt(len(values))
    half *= widening
    return Estimate(mean, sd, mean - half, mean + half, len(values))


@dataclass(frozen=True)
class Leak:
    """One attack on one setting, with its metrics per target; `tried` attacks were compared to choose it."""

    attack: str
    signal: str
    variance: str
    targets: np.ndarray
    auc: np.ndarray
    tpr: np.ndarray
    """At the headline FPR; NaN where it is not resolvable."""
    tried: int
    confidence: float

    @property
    def key(self) -> tuple[str, str, str]:
        """Attack, signal and variance."""
        return self.attack, self.signal, self.variance

    @property
    def auc_estimate(self) -> Estimate:
        """AUC over targets."""
        return estimate(self.auc, self.confidence).as_rate()

    @property
    def tpr_estimate(self) -> Estimate:
        """TPR at the headline FPR over targets."""
        return estimate(self.tpr, self.confidence).as_rate()

    @property
    def beats_guessing(self) -> bool:
        """Whether the AUC is above ½ even for the strongest of all attacks that were tried.

        What guessing would give is the null control's distribution: its errors go together, as those of the null control do.
        """
        return estimate(self.auc, self.confidence, self.tried, NULL_WIDENING).low > 0.5


def fpr_columns(metrics: pl.DataFrame) -> dict[float, str]:
    """Map the FPRs of a metrics table to their columns, smallest first."""
    columns = {
        float(match[1]): name for name in metrics.columns if (match := re.fullmatch(r"tpr_at_fpr_([0-9.e+-]+)", name))
    }
    return dict(sorted(columns.items()))


def headline_fpr(tables: Sequence[pl.DataFrame]) -> float | None:
    """Return the smallest FPR that every target of every setting resolves."""
    if not tables:
        return None
    tables = [table.filter(pl.col("auc").is_not_null()) for table in tables]
    shared = set.intersection(*(set(fpr_columns(table)) for table in tables))
    resolved = [fpr for fpr in shared if all(table[fpr_columns(table)[fpr]].null_count() == 0 for table in tables)]
    return min(resolved, default=None)


def candidates(metrics: pl.DataFrame, channel: str, variance: str) -> pl.DataFrame:
    """Return the rows of the real attacks on one channel, each attack with the headline's variance if it knows that one."""
    channels = {signal: read_signal(signal).channel for signal in metrics["signal"].unique()}
    wanted = [signal for signal, found in channels.items() if found == channel]
    rows = metrics.filter(~pl.col("null_control") & pl.col("signal").is_in(wanted) & pl.col("auc").is_not_null())
    known = pl.col("variance").is_in([variance]).any().over("attack", "signal")
    first = pl.col("variance").first().over("attack", "signal")
    return rows.filter(pl.col("variance") == pl.when(known).then(pl.lit(variance)).otherwise(first))


def leaks(metrics: pl.DataFrame, channel: str, headline: str, fpr: float | None, confidence: float) -> list[Leak]:
    """List the attacks on one channel of one setting, the largest mean AUC first."""
    rows = candidates(metrics, channel, headline).sort("target", maintain_order=True)
    column = fpr_columns(metrics)[fpr] if fpr is not None else None
    groups = rows.group_by(*ATTACK, maintain_order=True)
    count = rows.select(pl.struct(ATTACK).n_unique()).item() if len(rows) else 0
    found = [
        Leak(
            attack=str(attack),
            signal=str(signal),
            variance=str(variance),
            targets=group["target"].to_numpy(),
            auc=group["auc"].to_numpy(),
            tpr=group[column].to_numpy() if column else np.full(len(group), math.nan),
            tried=count,
            confidence=confidence,
        )
        for (attack, signal, variance), group in groups
    ]
    return sorted(found, key=lambda leak: -leak.auc.mean())


def difference(first: Leak, second: Leak, metric: str = "auc") -> Estimate:
    """Return first − second over the targets that both have; a UserError when they share none."""
    shared, left, right = np.intersect1d(first.targets, second.targets, return_indices=True)
    if not len(shared):
        raise UserError(
            f"metrics of {first.attack} and {second.attack} have no target in common; run the evaluation again"
        )
    return estimate(getattr(first, metric)[left] - getattr(second, metric)[right], first.confidence)


@dataclass(frozen=True)
class NullControl:
    """The same attacks against permuted membership, in one setting."""

    intervals: int
    holding: int
    strongest: float
    """The largest mean AUC of them all: how high the strongest of so many attacks comes by chance."""
    headline: dict[str, Estimate]
    """By channel: the null control of that channel's strongest attack."""
    sound: bool
    """Whether every headline interval holds ½ at the level `ALARM`, once widened for their number in the whole audit."""


def null_control(
    metrics: pl.DataFrame, strongest: dict[str, Leak], confidence: float, comparisons: int
) -> NullControl | None:
    """Summarise the null control of a setting; None where the metrics have none.

    `comparisons` is how many headline intervals the audit has: one in twenty misses ½ by chance.
    """
    rows = metrics.filter(pl.col("null_control") & pl.col("auc").is_not_null())
    values = {
        tuple(map(str, key)): group["auc"].to_numpy() for key, group in rows.group_by(*ATTACK, maintain_order=True)
    }
    if not values:
        return None
    found = {key: estimate(aucs, confidence, widening=NULL_WIDENING) for key, aucs in values.items()}
    headline = {channel: leak.key for channel, leak in strongest.items() if leak.key in found}
    return NullControl(
        intervals=len(found),
        holding=sum(not one.excludes(0.5) for one in found.values()),
        strongest=max(one.mean for one in found.values()),
        headline={channel: found[key] for channel, key in headline.items()},
        sound=not any(
            estimate(values[key], ALARM, comparisons, NULL_WIDENING).excludes(0.5) for key in headline.values()
        ),
    )


@dataclass(frozen=True)
class Proof:
    """The largest lower bound on ε that all attacks on a setting show together, at one confidence."""

    epsilon: float
    delta: float
    method: str
    attacks: int
    """Attacks that were tried, and paid for."""


def proof(metrics: pl.DataFrame, setting: Setting, confidence: float, delta: float) -> Proof:
    """Bound ε by all attacks of a setting at the δ that it promises, or at `delta`: a one-run proof where membership allows it."""
    real = metrics.filter(~pl.col("null_control"))
    delta = setting.delta or delta
    found = lower_bounds(real, delta, 1 - confidence, setting.design == "bernoulli")
    method = next(iter(found))
    return Proof(found[method], delta, method, real.select(pl.struct(ATTACK).n_unique()).item())


@dataclass(frozen=True)
class Finding:
    """What was found in one setting."""

    setting: Setting
    leaks: dict[str, list[Leak]]
    """By channel (outputs, explanations, both, other): the attacks, strongest first; no key for a channel without any."""
    train_accuracy: Estimate | None
    test_accuracy: Estimate | None
    shadows: pl.DataFrame | None
    """Last epoch of every shadow's training."""
    null: NullControl | None
    proof: Proof | None = None

    @property
    def strongest(self) -> dict[str, Leak]:
        """By channel: the strongest attack."""
        return {channel: found[0] for channel, found in self.leaks.items()}


@dataclass(frozen=True)
class Findings:
    """What was found in all settings, in the order of the spec."""

    fpr: float | None
    """The smallest FPR that every target of every setting resolves."""
    settings: list[Finding]
    confidence: float = 0.95

    def groups(self) -> dict[tuple[str, str], list[Finding]]:
        """Return the settings by dataset × architecture."""
        grouped: dict[tuple[str, str], list[Finding]] = {}
        for found in self.settings:
            grouped.setdefault(found.setting.group, []).append(found)
        return grouped


CHANNELS = ("outputs", "explanations", "both", "other")


def find(results: Results) -> Findings:
    """Read the findings of all settings off their metrics and training tables."""
    spec = results.spec
    fpr = headline_fpr(results.metrics)
    found = []
    for setting, metrics, shadows in zip(spec.settings, results.metrics, results.training, strict=True):
        by_channel = {channel: leaks(metrics, channel, spec.variance, fpr, spec.confidence) for channel in CHANNELS}
        by_channel = {channel: listed for channel, listed in by_channel.items() if listed}
        strongest = {channel: listed[0] for channel, listed in by_channel.items()}
        found.append(
            Finding(
                setting,
                by_channel,
                _accuracy(shadows, "train_accuracy", spec.confidence),
                _accuracy(shadows, "test_accuracy", spec.confidence),
                shadows,
                null_control(metrics, strongest, spec.confidence, len(spec.settings) * len(strongest)),
                proof(metrics, setting, spec.confidence, spec.delta),
            )
        )
    return Findings(fpr, found, spec.confidence)


def reference(group: Sequence[Finding]) -> Finding | None:
    """Return the setting that the others of its group are compared with: the first one that is not protected at all."""
    return next((one for one in group if not one.setting.private and not one.setting.no_guarantee), None)


def accuracy_difference(first: Finding, second: Finding, confidence: float) -> Estimate | None:
    """Return the test accuracy of first − second over the shadows that both have; None where one was not trained."""
    if first.shadows is None or second.shadows is None:
        return None
    both = first.shadows.join(second.shadows, on="shadow", suffix="_second").drop_nulls(
        ["test_accuracy", "test_accuracy_second"]
    )
    if both.is_empty():
        return None
    values = both["test_accuracy"].cast(pl.Float64) - both["test_accuracy_second"].cast(pl.Float64)
    return estimate(values.to_numpy(), confidence)


def _accuracy(shadows: pl.DataFrame | None, name: str, confidence: float) -> Estimate | None:
    found = shadow_estimate(shadows, name, confidence)
    return found.as_rate() if found else None


def shadow_estimate(shadows: pl.DataFrame | None, name: str, confidence: float) -> Estimate | None:
    """Estimate the mean of a column of training.parquet over shadows; None where nobody knows it."""
    known = shadows is not None and name in shadows.columns
    values = shadows[name].drop_nulls().cast(pl.Float64).to_numpy() if shadows is not None and known else np.empty(0)
    return estimate(values, confidence) if len(values) else None
