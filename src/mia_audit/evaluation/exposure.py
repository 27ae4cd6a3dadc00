"""Per-record exposure: the records whose scores differ most between models trained with them and without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def exposure(scores: Float[np.ndarray, "N K"], member: Bool[np.ndarray, "N K"]) -> dict[str, np.ndarray]:
    """Return per-record columns from one attack's scores on all K targets; NaN scores are left out of every mean.

    `member_score`, `non_member_score`: mean score over the targets that trained on the record, and over the others.
    `gap`: their difference. `percentile`: mean, over the targets that trained on the record, of the share of that
    target's scored records with a lower score; ties count ½. `rank`: 1 is the most exposed, with the largest gap; equal
    gaps keep the records' order, and records without a gap (NaN) come last. With a single target no record has a gap;
    its members are ranked by their percentiles.
    """
    scored = ~np.isnan(scores)
    inside, outside = scored & member, scored & ~member
    totals = np.zeros((3, len(scores)))
    for column, within, without in zip(scores.T, inside.T, outside.T, strict=True):
        np.add(totals[0], column, out=totals[0], where=within)
        np.add(totals[1], column, out=totals[1], where=without)
        np.add(totals[2], _percentile(column), out=totals[2], where=within)
    with np.errstate(invalid="ignore"):
        member_score, percentile = totals[[0, 2]] / inside.sum(axis=1)
        non_member_score = totals[1] / outside.sum(axis=1)
    gap = member_score - non_member_score
    decisive = percentile if scores.shape[1] == 1 else gap
    rank = np.empty(len(gap), dtype=np.int32)
    rank[np.argsort(np.where(np.isnan(decisive), np.inf, -decisive), kind="stable")] = np.arange(1, len(gap) + 1)
    return {
        "member_score": member_score,
        "non_member_score": non_member_score,
        "gap": gap,
        "percentile": percentile,
        "rank": rank,
    }


def _percentile(scores: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return for each record the share of scored records with a lower score, where ties, including that with itself,
    count ½; NaN for unscored records.
    """
    order = np.argsort(scores)  # NaN comes last
    known = int(np.count_nonzero(~np.isnan(scores)))
    ranked = scores[order[:known]]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1])[:known])
    tied = np.diff(first, append=known)
    shares = np.full(len(scores), np.nan)
    shares[order[:known]] = np.repeat((2 * first + tied) / (2 * max(known, 1)), tied)
    return shares
