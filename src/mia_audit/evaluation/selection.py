"""The strongest of several attacks: an estimate and an interval that allow for its having been chosen by its mean.

Errors of all attacks are drawn jointly, with the correlations that the targets show. The lower limit is a simultaneous
one (no attack's error may exceed it), and the upper limit is that of an attack fixed beforehand. Both tails have one
level, the largest at which the interval misses in at most 1 − confidence of the draws if all attacks are equally strong
and if one is far above the others. The estimate subtracts the mean error of the chosen attack from its mean, if true
values differ as much as the means do beyond their errors (empirical Bayes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import polygamma

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from mia_audit.evaluation.intervals import OverTargets

DRAWS = 2000
FEWEST_TARGETS = 3
"""With fewer targets their correlations are unknown, and the interval is Bonferroni's."""
TAILS = np.linspace(0.2, 1.0, 41)
"""Levels of one tail that are tried, as shares of 1 − confidence."""


@dataclass(frozen=True)
class Chosen:
    """The mean of the metric on which the largest was chosen, or of another metric of the chosen attack."""

    mean: float
    low: float
    high: float


def after_selection(
    overs: Sequence[OverTargets], confidence: float, other: OverTargets | None = None, draws: int = DRAWS
) -> Chosen:
    """Estimate the metric of the attack with the largest mean of `overs`, over the same targets; or its metric `other`."""
    best = max(overs, key=lambda over: over.mean)
    shown = best if other is None else other
    if len(overs) == 1 or shown.count < FEWEST_TARGETS or any(over.count != best.count for over in overs):
        return Chosen(shown.mean, *shown.interval(confidence, len(overs)))
    means = np.array([over.mean for over in overs])
    errors = np.array([over.error for over in overs])
    values = np.stack([over.values for over in overs])
    moved = None if other is None or other.count != best.count else other.values
    shift, below, above = selection_errors(means, errors, values, confidence=confidence, other=moved, draws=draws)
    error = float(errors[np.argmax(means)]) if other is None else other.error
    return Chosen(shown.mean - shift * error, shown.mean - below * error, shown.mean + above * error)


def selection_errors(
    means: Float[np.ndarray, " A"],
    errors: Float[np.ndarray, " A"],
    values: Float[np.ndarray, "A K"],
    confidence: float,
    other: Float[np.ndarray, " K"] | None = None,
    draws: int = DRAWS,
) -> tuple[float, float, float]:
    """Return the mean error of the chosen attack, and the distances of its limits below and above, in its standard errors."""
    count, targets = values.shape
    random = np.random.default_rng(0)
    residuals = values - values.mean(axis=1, keepdims=True)
    norms = np.sqrt((residuals**2).sum(axis=1, keepdims=True))
    residuals = np.divide(residuals, norms, out=np.zeros_like(residuals), where=norms > 0)
    related = residuals @ residuals.T
    common = min(max(0.0, float(related.sum() - np.trace(related)) / (count * (count - 1))), 1.0)
    # half of the draws' variance has the targets' own correlations, half their mean: few targets overstate the former
    drawn = np.sqrt(0.5) * (random.normal(size=(draws, targets)) @ residuals.T) + np.sqrt(0.5) * (
        np.sqrt(common) * random.normal(size=(draws, 1)) + np.sqrt(1 - common) * random.normal(size=(draws, count))
    )
    pooled, freedom = _moderated(errors, related, targets - 1)
    tails = np.sqrt(random.chisquare(freedom, size=draws) / freedom)
    best, rows = int(np.argmax(means)), np.arange(draws)
    spread = float(means.var(ddof=1))
    kept = max(0.0, 1 - (1 - common) * float(np.mean(pooled**2)) / spread) if spread > 0 else 0.0
    likely = kept * (means - means.mean())
    slope = 1.0 if other is None else _correlation(residuals[best], other)
    rest = np.sqrt(1 - slope**2) * random.normal(size=draws)

    def chosen(truth: np.ndarray) -> np.ndarray:
        places = np.argmax(truth + drawn * pooled, axis=1)
        return np.asarray(slope * drawn[rows, places] + rest)

    shift = float(chosen(likely).mean())
    scale = float(pooled[best] / errors[best]) if errors[best] > 0 else 1.0
    below, above = _limits(chosen(np.zeros(count)) / tails, (slope * drawn[:, best] + rest) / tails, 1 - confidence)
    return shift * scale, below * scale, above * scale


def _limits(equal: Float[np.ndarray, " D"], fixed: Float[np.ndarray, " D"], alpha: float) -> tuple[float, float]:
    """Return the limits' distances at the largest level of a tail that keeps misses within α for equal attacks and for a fixed one."""
    either = np.concatenate([fixed, -fixed])
    for share in TAILS[::-1]:
        below = float(max(np.quantile(equal, 1 - share * alpha), np.quantile(either, 1 - share * alpha)))
        above = float(np.quantile(either, 1 - share * alpha))
        missed = max(np.mean((errors > below) | (errors < -above)) for errors in (equal, either))
        if missed <= alpha:
            break
    return below, above


def _moderated(
    errors: Float[np.ndarray, " A"], related: Float[np.ndarray, "A A"], freedom: int
) -> tuple[Float[np.ndarray, " A"], float]:
    """Return standard errors shrunk towards their common level as far as they agree beyond chance, and their degrees of freedom."""
    alike = float(np.mean(related**2))
    if not (errors > 0).all():
        return errors, float(freedom)
    beyond = float(np.log(errors**2).var(ddof=1) - polygamma(1, freedom / 2) * (1 - alike))
    prior = 2 / max(beyond, 1e-3)
    variances = (prior * np.mean(errors**2) + freedom * errors**2) / (prior + freedom)
    return np.sqrt(variances), min(freedom + prior, freedom / alike)


def _correlation(residual: Float[np.ndarray, " K"], other: Float[np.ndarray, " K"]) -> float:
    centred = other - other.mean()
    norm = float(np.sqrt((centred**2).sum()))
    return float(np.clip(residual @ centred / norm, -1, 1)) if norm > 0 else 0.0
