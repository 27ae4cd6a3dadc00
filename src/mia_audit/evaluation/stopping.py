"""The stopping rule of an audit that grows rung by rung: intervals that hold at all looks together.

Of R looks planned beforehand, each has an interval of level 1 − α/R (Bonferroni: alpha spending in equal shares, Lan
and DeMets 1983). All of them hold together with probability 1 − α, so the interval at which the audit stops holds too,
whatever the reason to stop. The audit may stop before the last look, but no look may be added. Each interval is for the
attack with the models of its rung.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.summary import of_drawn_unit

if TYPE_CHECKING:
    import polars as pl

AUTO = (2, 4, 8, 16, 32)
"""The numbers of other models at the rungs of `ladder: auto`."""

FEWEST_OTHERS = 3
"""With this many other models or more, every model is a target. Fewer models are only references of a single target."""


@dataclass(frozen=True)
class Look:
    """A metric of a setting's strongest attack at one look."""

    attack: str
    signal: str
    likelihood: str
    metric: str
    models: int
    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the interval's width; NaN if the metric cannot be resolved."""
        return (self.high - self.low) / 2

    def narrow(self, half: float) -> bool:
        """Return whether half the interval's width is at most `half`."""
        return self.half <= half  # false for NaN


def rungs(ladder: str | Sequence[int], models: int) -> list[int]:
    """Return the number of shadow models of every rung that is a complete audit. The last rung has all models."""
    counts = sorted({one + 1 for one in _others(ladder) if one >= FEWEST_OTHERS and one + 1 < models})
    return [*counts, models]


def screens(ladder: str | Sequence[int]) -> list[int]:
    """Return the numbers of references, one or two, of the rungs that only screen the first model."""
    return sorted({one for one in _others(ladder) if one < FEWEST_OTHERS})


def _others(ladder: str | Sequence[int]) -> Sequence[int]:
    return AUTO if isinstance(ladder, str) else ladder


def column(metric: str) -> str:
    """Name the metrics column for a key of `until`: tpr_at_0.01 means the column tpr_at_fpr_0.01."""
    return metric.replace("tpr_at_", "tpr_at_fpr_") if metric.startswith("tpr_at_") else metric


def look(metrics: pl.DataFrame, names: Sequence[str], confidence: float, looks: int) -> list[Look]:
    """Return the metrics of the strongest attack, which has the largest mean AUC, at one of `looks` planned looks.

    Intervals are clipped to [0, 1]. Mean and interval are NaN if the metric cannot be resolved for some target.
    """
    import polars as pl

    real = of_drawn_unit(metrics).filter(~pl.col("null_control"), pl.col("auc").is_not_null())
    groups = list(real.group_by("attack", "signal", "likelihood", "aggregate", maintain_order=True))
    if not groups:
        return []
    (attack, signal, likelihood, _), best = max(groups, key=lambda one: float(one[1]["auc"].to_numpy().mean()))
    key = (str(attack), str(signal), str(likelihood))
    return [Look(*key, name, len(best), *_estimate(best, column(name), confidence, looks)) for name in names]


def _estimate(rows: pl.DataFrame, name: str, confidence: float, looks: int) -> tuple[float, float, float]:
    if name not in rows.columns or rows[name].null_count():
        return float("nan"), float("nan"), float("nan")
    over = OverTargets.of(rows, name, confidence)
    low, high = over.interval(confidence, looks)
    return over.mean, max(low, 0.0), min(high, 1.0)


def enough(looked: Sequence[Look], until: Mapping[str, float]) -> bool:
    """Return whether every interval in `until` is as narrow as requested, in all settings looked at."""
    return bool(looked) and all(one.narrow(until[one.metric]) for one in looked if one.metric in until)
