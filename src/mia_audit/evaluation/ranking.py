"""One target's records ranked by their score, from one sort: everything that is read off a ROC curve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Scores = Float[np.ndarray, " n"]
    Member = Bool[np.ndarray, " n"]


class Ranking:
    """How many members and non-members score at most as high as each score that occurs, from the lowest score up."""

    def __init__(self, scores: Scores, member: Member) -> None:
        """Rank the records; NaN scores are left out, and equal scores (0 and −0 among them) are one vertex."""
        known = ~np.isnan(scores)
        if not known.all():
            scores, member = scores[known], member[known]
        values, inside = _sorted(scores, member)
        self.missed: Int[np.ndarray, " v"] = np.cumsum(inside)
        """Members that are missed when only higher scores are called members."""
        self.spared: Int[np.ndarray, " v"] = np.arange(1, len(values) + 1) - self.missed
        """Non-members that are then spared."""
        self.members = int(self.missed[-1]) if len(values) else 0
        self.non_members = len(values) - self.members
        differs = values[1:] != values[:-1]
        if not differs.all():
            last = np.flatnonzero(np.append(differs, True))
            self.missed, self.spared = self.missed[last], self.spared[last]

    def auc(self) -> tuple[float, float]:
        """Return the area under the curve with ties at ½, and its DeLong variance (0 where a side has one record)."""
        here_in, here_out = np.diff(self.missed, prepend=0), np.diff(self.spared, prepend=0)
        won = 2 * self.spared - here_out  # by the members at each score, in halves
        lost = 2 * (self.members - self.missed) + here_in  # by the non-members
        area = int(here_in @ won) / (2 * self.members * self.non_members)
        variance = 0.0
        for here, halves, pairs in ((here_in, won, self.non_members), (here_out, lost, self.members)):
            if (count := int(here.sum())) > 1:
                distance = halves / (2 * pairs)
                distance -= area
                variance += float(here @ np.square(distance)) / (count - 1) / count
        return area, variance

    def balanced_accuracy(self) -> float:
        """Return the largest (TPR + 1 − FPR)/2 over all thresholds."""
        gain = self.spared / self.non_members
        gain -= self.missed / self.members
        return (1 + max(0.0, float(gain.max()))) / 2

    def called(self, share: float) -> tuple[int, int]:
        """Count members and non-members among the highest-scoring records, the most that are at most this share of all."""
        called = self.members + self.non_members - (self.missed + self.spared)
        vertex = int(np.searchsorted(-called, -math.floor(share * (self.members + self.non_members))))
        return self.members - int(self.missed[vertex]), self.non_members - int(self.spared[vertex])

    def true_positives(self, fprs: Float[np.ndarray, " x"]) -> Int[np.ndarray, " x"]:
        """Return, per FPR x, the most members that a threshold finds whose false positives are at most x of the non-members."""
        allowed = np.floor(fprs * self.non_members)
        allowed += (allowed + 1) / self.non_members <= fprs  # x · n may round to either side of an integer
        allowed -= allowed / self.non_members > fprs
        vertex = np.searchsorted(self.spared, self.non_members - allowed)
        missed = np.append(0, self.missed)[np.where(allowed < self.non_members, vertex + 1, 0)]
        found: Int[np.ndarray, " x"] = self.members - missed
        return found


def _sorted(scores: Scores, member: Member) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores from the lowest up, or integers that rank and tie as they do, and 1 for every member among them."""
    if scores.dtype != np.float32:
        order = np.argsort(scores)
        return scores[order], member[order].astype(np.int64)
    # Sorting is faster than finding an order: the bits of a float rank as an integer, with room for one bit more.
    bits = (scores + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    keys = bits.astype(np.int64)
    keys <<= 1
    keys |= member
    keys.sort()
    return keys >> 1, keys & 1
