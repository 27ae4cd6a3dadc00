"""The exact ROC curve, with one vertex per distinct score, and its mean over targets without interpolation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.evaluation.ranking import Ranking

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def roc_curve(
    scores: Float[np.ndarray, " n"], member: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " v"], Float[np.ndarray, " v"], Float[np.ndarray, " v"]]:
    """Return FPR, TPR and threshold of every vertex, from (0, 0) at +inf to (1, 1); a record is called a member if score ≥ threshold.

    NaN scores are left out. Raises ValueError without a member or a non-member.
    """
    scored = ~np.isnan(scores)
    scores, member = scores[scored], member[scored]
    order = np.argsort(-scores, kind="stable")
    scores, member = scores[order], member[order]
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
    true_positives = np.cumsum(member)[last]
    false_positives = last + 1 - true_positives
    if not true_positives[-1] or not false_positives[-1]:
        raise ValueError("a ROC curve needs at least one scored member and one scored non-member")
    fpr = np.concatenate([[0.0], false_positives / false_positives[-1]])
    tpr = np.concatenate([[0.0], true_positives / true_positives[-1]])
    return fpr, tpr, np.concatenate([[np.inf], scores[last]])


def read_out(
    fpr: Float[np.ndarray, " v"], tpr: Float[np.ndarray, " v"], at: Float[np.ndarray, " x"]
) -> Float[np.ndarray, " x"]:
    """Return the largest TPR among the vertices whose FPR is at most x, for every x of `at`: a step function."""
    return np.asarray(tpr[np.searchsorted(fpr, at, side="right") - 1])


def log_grid(non_members: int, points: int = 200) -> Float[np.ndarray, " points"]:
    """Return FPRs from 1/non_members to 1, evenly spaced in their logarithm."""
    grid = np.geomspace(1 / non_members, 1.0, points)
    grid[0], grid[-1] = 1 / non_members, 1.0
    return grid


def mean_log_roc(
    targets: Iterable[tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]],
    fprs: Float[np.ndarray, " x"],
) -> tuple[Float[np.ndarray, " x"], Float[np.ndarray, " x"]]:
    """Return mean and standard deviation (n − 1; 0 for one target) over targets of the TPR at each FPR.

    `targets` yields (scores, member) per target; each curve is read as the step function of `read_out`.
    """
    ranked = (Ranking(scores, member) for scores, member in targets)
    curves = np.array([ranking.true_positives(fprs) / ranking.members for ranking in ranked])
    sd = curves.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(fprs))
    return curves.mean(axis=0), sd
