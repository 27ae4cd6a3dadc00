"""Metrics of one target, exact for tied scores, with intervals over its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.evaluation.called import SHARES, called_columns
from mia_audit.evaluation.ranking import Ranking, Rankings

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Scores = Float[np.ndarray, " n"]
    Member = Bool[np.ndarray, " n"]


CELLS = 1 << 19
"""Number of scores that are ranked at once."""


def target_metrics(scores: Scores, member: Member, fprs: Sequence[float], confidence: float = 0.95) -> dict[str, Any]:
    """Return one target's row of metrics.parquet; NaN scores are counted as unscored and left out.

    The TPR at an FPR below 1/non-members cannot be resolved, and is null. Without a scored member or non-member every
    metric is null. The counts `members_in_top_{share}` and `non_members_in_top_{share}` are the input of bounds on ε.
    """
    ranking = Ranking(scores, member)
    members, non_members = ranking.members, ranking.non_members
    row: dict[str, Any] = {
        "members": members,
        "non_members": non_members,
        "unscored": len(scores) - members - non_members,
    }
    row |= dict.fromkeys(["auc", "auc_low", "auc_high", "balanced_accuracy"])
    both = members > 0 and non_members > 0
    if both:
        value, variance = ranking.auc()
        low, high = auc_interval(value, variance, members, non_members, confidence)
        row |= {"auc": value, "auc_low": low, "auc_high": high, "balanced_accuracy": ranking.balanced_accuracy()}
    counts = ranking.true_positives(np.asarray(fprs, dtype=np.float64)) if both else [None] * len(fprs)
    for fpr, positives in zip(fprs, counts, strict=True):
        name = f"tpr_at_fpr_{fpr:g}"
        row |= {name: None, f"{name}_low": None, f"{name}_high": None}
        if positives is not None and fpr >= 1 / non_members:
            low, high = clopper_pearson(int(positives), members, confidence)
            row |= {name: int(positives) / members, f"{name}_low": low, f"{name}_high": high}
    for share in SHARES:
        row |= dict(zip(called_columns(share), ranking.called(share) if both else (None, None), strict=True))
    return row


def metrics_of_columns(
    scores: Float[np.ndarray, "N C"], member: Bool[np.ndarray, "N C"], fprs: Sequence[float]
) -> dict[str, Float[np.ndarray, " C"]]:
    """Return the metrics of several targets, without intervals, from float32 scores; NaN for a metric that cannot be resolved."""
    names = ("auc", "balanced_accuracy", *(f"tpr_at_fpr_{fpr:g}" for fpr in fprs))
    metrics = {name: np.full(scores.shape[1], np.nan) for name in names}
    known = ~np.isnan(scores).any(axis=0)
    step = max(1, CELLS // max(len(scores), 1))
    parts = [
        part for start in range(0, scores.shape[1], step) if len(part := np.flatnonzero(known)[start : start + step])
    ]
    for part in parts + [np.array([column]) for column in np.flatnonzero(~known)]:
        scored = ~np.isnan(scores[:, part[0]])
        values, inside = (matrix.T[part].T[scored] for matrix in (scores, member))
        number = inside.sum(axis=0)
        whole = (number > 0) & (number < len(inside))
        if not whole.all():
            part, values, inside = part[whole], values[:, whole], inside[:, whole]
        if not len(part):
            continue
        rankings = Rankings(values, inside)
        metrics["auc"][part] = rankings.auc()
        metrics["balanced_accuracy"][part] = rankings.balanced_accuracy()
        positives = rankings.true_positives(np.asarray(fprs, dtype=np.float64))
        for fpr, name, column in zip(fprs, names[2:], positives.T, strict=True):
            resolved = fpr >= 1 / rankings.non_members
            metrics[name][part] = np.where(resolved, column / rankings.members, np.nan)
    return metrics


def auc(scores: Scores, member: Member) -> float:
    """Return the area under the ROC curve, ties at ½: the probability that a member's score exceeds a non-member's."""
    return Ranking(scores, member).auc()[0]


def balanced_accuracy(scores: Scores, member: Member) -> float:
    """Return the largest (TPR + 1 − FPR)/2 over all thresholds."""
    return Ranking(scores, member).balanced_accuracy()


def tpr_at_fpr(scores: Scores, member: Member, fpr: float) -> float:
    """Return the largest TPR among the ROC curve's vertices with FPR ≤ `fpr`; 0 if only the origin qualifies."""
    ranking = Ranking(scores, member)
    return int(ranking.true_positives(np.array([fpr]))[0]) / ranking.members


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided interval of a proportion (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


def auc_interval(
    value: float, variance: float, members: int, non_members: int, confidence: float
) -> tuple[float, float]:
    """Return the interval of an AUC: DeLong's variance (DeLong et al. 1988) on the logit scale.

    At an AUC of 0 or 1 that variance is 0. The bound is then that of Clopper and Pearson for min(members, non_members)
    independent pairs that are all ordered in the same way.
    """
    from scipy.special import ndtri

    pairs = min(members, non_members)
    if value in (0.0, 1.0):
        return clopper_pearson(pairs if value else 0, pairs, confidence)
    half = float(ndtri((1 + confidence) / 2)) * np.sqrt(variance) / (value * (1 - value))
    centre = np.log(value / (1 - value))
    return float(1 / (1 + np.exp(half - centre))), float(1 / (1 + np.exp(-half - centre)))
