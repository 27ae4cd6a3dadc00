"""The wrong way in which the published code of Huang et al. 2024 reads TPRs from a ROC curve, kept for comparison only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FPRS = (0.001, 0.01)
"""The FPRs of their tables."""

POINTS = 10_000
"""Number of evenly spaced points to which their curve is interpolated."""


def authors_read_out(
    scores: Float[np.ndarray, " N"], member: Bool[np.ndarray, " N"], fprs: Sequence[float] = FPRS
) -> tuple[list[float], float]:
    """Return what their code calls the TPR at each of `fprs`, and the AUC, of one target's scores; NaN scores are left out.

    Their code takes members to have low scores, and swaps the curve's axes. This leaves the AUC unchanged but turns the
    TPR at an FPR into the share of non-members recognised at a share of members missed. It then interpolates the curve
    to `POINTS` even points, but reads it at the FPR's position in the curve before interpolation. At least one member
    and one non-member must have scores.
    """
    from sklearn.metrics import roc_curve

    scored = ~np.isnan(scores)
    vertical, horizontal, _ = roc_curve(member[scored], -scores[scored])
    even = np.linspace(0, 1, POINTS)
    curve = np.interp(even, horizontal, vertical)
    positions = [int(np.flatnonzero(horizontal <= fpr)[-1]) for fpr in fprs]
    return [float(curve[min(position, POINTS - 1)]) for position in positions], float(np.trapezoid(curve, even))
