"""Metrics of one target, exact with ties, with intervals within the target.

Everything comes from two sorted arrays, the members' and the non-members' scores: where the scores of one fall among
the other's (their placements) gives the AUC, its DeLong variance and the best balanced accuracy; the TPR at an FPR
needs one score only, the one of the first non-member that may no longer be called a member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Scores = Float[np.ndarray, " n"]
    Member = Bool[np.ndarray, " n"]


def target_metrics(scores: Scores, member: Member, fprs: Sequence[float], confidence: float = 0.95) -> dict[str, Any]:
    """Return one target's row of metrics.parquet; NaN scores are counted as unscored and left out.

    The TPR at an FPR below 1/non-members is null: not resolvable. Without a scored member or non-member every metric is.
    """
    scored = ~np.isnan(scores)
    inside, outside = np.sort(scores[scored & member]), np.sort(scores[scored & ~member])
    row: dict[str, Any] = {
        "members": len(inside),
        "non_members": len(outside),
        "unscored": int(len(scores) - np.count_nonzero(scored)),
    }
    row |= dict.fromkeys(["auc", "auc_low", "auc_high", "balanced_accuracy"])
    both = len(inside) > 0 and len(outside) > 0
    if both:
        below, up_to = _placements(inside, outside)
        value, variance = _auc(below, up_to, len(outside))
        low, high = auc_interval(value, variance, len(inside), len(outside), confidence)
        accuracy = _balanced_accuracy(below, len(outside))
        row |= {"auc": value, "auc_low": low, "auc_high": high, "balanced_accuracy": accuracy}
    for fpr in fprs:
        name = f"tpr_at_fpr_{fpr:g}"
        row |= {name: None, f"{name}_low": None, f"{name}_high": None}
        if both and fpr >= 1 / len(outside):
            positives = _true_positives(inside, outside, fpr)
            low, high = clopper_pearson(positives, len(inside), confidence)
            row |= {name: positives / len(inside), f"{name}_low": low, f"{name}_high": high}
    return row


def auc(scores: Scores, member: Member) -> float:
    """Return the area under the ROC curve, ties at ½: the chance that a member's score beats a non-member's."""
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    return _auc(*_placements(inside, outside), len(outside))[0]


def balanced_accuracy(scores: Scores, member: Member) -> float:
    """Return the largest (TPR + 1 − FPR)/2 over all thresholds."""
    outside = np.sort(scores[~member])
    return _balanced_accuracy(_placements(np.sort(scores[member]), outside)[0], len(outside))


def tpr_at_fpr(scores: Scores, member: Member, fpr: float) -> float:
    """Return the largest TPR among the vertices with FPR ≤ `fpr`; 0 where only the empty one has."""
    inside = scores[member]
    return _true_positives(np.sort(inside), np.sort(scores[~member]), fpr) / len(inside)


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

    At an AUC of 0 or 1 that variance is 0 and says nothing: the bound is then the Clopper–Pearson one for
    min(members, non_members) independent pairs, all ordered alike.
    """
    from scipy.special import ndtri

    pairs = min(members, non_members)
    if value in (0.0, 1.0):
        return clopper_pearson(pairs if value else 0, pairs, confidence)
    half = float(ndtri((1 + confidence) / 2)) * np.sqrt(variance) / (value * (1 - value))
    centre = np.log(value / (1 - value))
    return float(1 / (1 + np.exp(half - centre))), float(1 / (1 + np.exp(-half - centre)))


def _placements(inside: Scores, outside: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Return, per member, how many non-members score below it and how many score at most the same; both inputs sorted."""
    # Two sorted runs merge in one sequential pass; searching for each member jumps through memory.
    order = np.argsort(np.concatenate([outside, inside]), kind="stable")
    up_to = np.flatnonzero(order >= len(outside)) - np.arange(len(inside))
    tied = (outside[np.maximum(up_to, 1) - 1] == inside) & (up_to > 0)
    below = up_to.copy()
    below[tied] = np.searchsorted(outside, inside[tied], side="left")
    return below, up_to


def _auc(below: np.ndarray, up_to: np.ndarray, non_members: int) -> tuple[float, float]:
    """Return AUC and DeLong variance from the placements of the sorted members among the non-members."""
    members = len(below)
    of_members = (below + up_to) / (2 * non_members)
    # A non-member's placement counts the members above it, ties at ½: member j is above non-members 0 … below_j − 1.
    above = members - np.cumsum(np.bincount(below, minlength=non_members + 1))[:non_members]
    at_least = members - np.cumsum(np.bincount(up_to, minlength=non_members + 1))[:non_members]
    of_non_members = (above + at_least) / (2 * members)
    variance = 0.0
    for placement in (of_members, of_non_members):
        variance += float(placement.var(ddof=1)) / len(placement) if len(placement) > 1 else 0.0
    return float(of_members.mean()), variance


def _balanced_accuracy(below: np.ndarray, non_members: int) -> float:
    """Return the best balanced accuracy; the best threshold is always a member's score (or above all)."""
    members = len(below)
    tpr = (members - np.arange(members)) / members
    return max(0.5, float((tpr + below / non_members).max()) / 2)


def _true_positives(inside: Scores, outside: Scores, fpr: float) -> int:
    """Count the members above the first non-member that may no longer be called one at this FPR; both inputs sorted."""
    allowed = int(fpr * len(outside))
    allowed += (allowed + 1) / len(outside) <= fpr  # fpr · n may round just below an integer
    if allowed >= len(outside):
        return len(inside)
    return len(inside) - int(np.searchsorted(inside, outside[len(outside) - 1 - allowed], side="right"))
