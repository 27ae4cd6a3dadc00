"""The empirical ε of an attack on a setting: thresholds fixed on half of the targets, bounds proved on the other half."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.evaluation.epsilon import (
    clopper_pearson_epsilon,
    gaussian_epsilon,
    held_out_threshold,
    one_run_epsilon,
)
from mia_audit.evaluation.files import KEYS, Scored

if TYPE_CHECKING:
    from jaxtyping import Bool

GUESSED = (0.01, 0.05, 0.2, 1.0)
"""Shares of the records that the one-run bound guesses, half of them in and half out; fixed here, and paid for."""


def held_out(targets: np.ndarray) -> Bool[np.ndarray, " K"]:
    """Return which targets choose thresholds and attacks: every second one; the others are for the bounds."""
    held: Bool[np.ndarray, " K"] = np.arange(len(targets)) % 2 == 0
    return held


def bounds(scored: Scored, delta: float, confidence: float, bernoulli: bool) -> list[dict[str, Any]]:
    """Return a row per method with its lower bound on ε at δ; the one-run bound only for fair-coin (`bernoulli`) membership.

    The Clopper–Pearson and Gaussian bounds take the records of the targets as independent trials; records of one target
    share its training, so that they are estimates where the one-run bound is a proof.
    """
    alpha = 1 - confidence
    choosing = held_out(scored.target)
    threshold = held_out_threshold(scored.score[:, choosing].ravel(), scored.member[:, choosing].ravel(), alpha, delta)
    scores, member = scored.score[:, ~choosing], scored.member[:, ~choosing]
    known = ~np.isnan(scores)
    called = scores >= threshold
    counts = {
        "members": int((known & member).sum()),
        "non_members": int((known & ~member).sum()),
        "true_positives": int((called & member).sum()),
        "false_positives": int((called & ~member).sum()),
    }
    errors = (counts["true_positives"], counts["false_positives"], counts["members"], counts["non_members"])
    found = {
        "clopper-pearson": clopper_pearson_epsilon(*errors, alpha, delta),
        "gaussian": gaussian_epsilon(*errors, alpha, delta),
    }
    fixed = dict(zip(KEYS, scored.key, strict=True))
    rows = [
        fixed | {"method": name, "epsilon": value, "threshold": threshold} | counts for name, value in found.items()
    ]
    if bernoulli:
        rows.append(fixed | {"method": "one-run", "epsilon": _one_run(scored, delta, alpha)})
    return [row | {"delta": delta, "confidence": confidence} for row in rows]


def bounds_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Return the rows as a table; what a method does not have is null."""
    counts = ("members", "non_members", "true_positives", "false_positives")
    kinds: dict[str, Any] = dict.fromkeys(KEYS, pl.String) | {"null_control": pl.Boolean, "method": pl.String}
    kinds |= dict.fromkeys(("epsilon", "delta", "confidence", "threshold"), pl.Float64)
    kinds |= dict.fromkeys(counts, pl.Int64)
    return pl.DataFrame(rows, schema=kinds)


def _one_run(scored: Scored, delta: float, alpha: float) -> float:
    """Return the largest bound of all targets and all shares guessed, each at its part of α (Bonferroni)."""
    records = len(scored.record)
    level = alpha / (len(scored.target) * len(GUESSED))
    best = 0.0
    for scores, member in zip(scored.score.T, scored.member.T, strict=True):
        order = np.argsort(np.nan_to_num(scores, nan=float(np.nanmedian(scores))), kind="stable")
        for share in GUESSED:
            half = max(1, int(share * records / 2))
            correct = int(member[order[-half:]].sum() + (~member[order[:half]]).sum())
            best = max(best, one_run_epsilon(records, 2 * half, correct, level, delta))
    return best
