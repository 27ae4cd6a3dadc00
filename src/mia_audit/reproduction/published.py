"""The printed numbers of Huang et al. 2024, their membership score, and their evaluation of the ROC curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.likelihood import blocks

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

PRINTED = {
    "loss": ("Loss LiRA", ((0.054, 0.007), (0.095, 0.012), (0.570, 0.009))),
    "l1": ("L1-LRT", ((0.093, 0.022), (0.156, 0.018), (0.639, 0.008))),
    "l2": ("L2-LRT", ((0.078, 0.021), (0.146, 0.016), (0.633, 0.007))),
    "variance": ("VAR-LRT", ((0.025, 0.008), (0.120, 0.015), (0.613, 0.009))),
}
"""Their Table 3 by signal: the attack's name, then mean and standard deviation of TPR at 0.1 % and at 1 % FPR and of the AUC."""

FPRS = (0.001, 0.01)

POINTS = 10_000
"""Evenly spaced points to which their curve is interpolated."""


def their_score(signal: Float[np.ndarray, "N K"], member: Bool[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """Return the score of their code: a Gaussian log ratio around a record's in and out means, with one variance for all records.

    That variance is the one of all in and out means together. Shapes are [N records, K models]; each target is left out
    in turn.
    """
    shape = signal.shape
    scores, count = np.empty(shape, order="F"), 0
    total, square = np.zeros(shape[1]), np.zeros(shape[1])
    centre = float(signal.mean())
    for block in blocks(signal, member):
        value = block.values + (block.span.mean - centre)
        means = [value - side.deviation for side in (block.inside, block.outside)]
        for mean in means:
            total += mean.sum(axis=0)
            square += np.square(mean).sum(axis=0)
            count += len(mean)
        scores[block.rows] = (block.outside.deviation**2 - block.inside.deviation**2) / 2
    spread: Float[np.ndarray, "N K"] = scores / (square / count - (total / count) ** 2)
    return spread


def their_read_out(scores: Float[np.ndarray, " N"], member: Bool[np.ndarray, " N"]) -> tuple[list[float], float]:
    """Return TPR at `FPRS` and the AUC of one target's scores, computed as in their code.

    Members are taken to have low scores and the curve's axes are swapped. This leaves the AUC unchanged but turns a TPR at
    an FPR into the share of non-members recognised at a share of members missed. The curve is then interpolated to
    `POINTS` even points, but indexed by the position of the FPR in the curve before interpolation.
    """
    from sklearn.metrics import roc_curve

    vertical, horizontal, _ = roc_curve(member, -scores)
    even = np.linspace(0, 1, POINTS)
    curve = np.interp(even, horizontal, vertical)
    positions = [int(np.flatnonzero(horizontal <= fpr)[-1]) for fpr in FPRS]
    return [float(curve[min(position, POINTS - 1)]) for position in positions], float(np.trapezoid(curve, even))
