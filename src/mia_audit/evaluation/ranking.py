"""Rank records by score with a single sort per target. All metrics of a ROC curve follow from the ranking."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Scores = Float[np.ndarray, " n"]
    Member = Bool[np.ndarray, " n"]


COUNT = np.int32
"""Type of counts of records: half the memory of NumPy's default."""


class Ranking:
    """The numbers of members and non-members at or below each distinct score, in ascending order."""

    def __init__(self, scores: Scores, member: Member) -> None:
        """Rank the records; NaN scores are left out, and equal scores (0 and −0 among them) are one vertex."""
        known = ~np.isnan(scores)
        if not known.all():
            scores, member = scores[known], member[known]
        values, inside = _sorted(scores, member)
        last = np.append(values[1:] != values[:-1], True)[: len(values)]
        ends = np.arange(1, len(values) + 1, dtype=COUNT)[last]
        missed = np.append(COUNT(0), np.cumsum(inside, dtype=COUNT)[last])
        self._from_none = missed
        self.missed: Int[np.ndarray, " v"] = missed[1:]
        """The number of members that are missed if only higher scores are called members, by vertex."""
        self.spared: Int[np.ndarray, " v"] = ends - self.missed
        """The number of non-members that are then correctly rejected, by vertex."""
        self._ends = ends
        self.members = int(missed[-1])
        self.non_members = len(values) - self.members

    def auc(self) -> tuple[float, float]:
        """Return the area under the curve with ties at ½, and its DeLong variance (0 where a side has one record)."""
        missed = self._from_none.astype(np.float64)  # counts are exact as floats
        spared = np.zeros(len(missed))
        spared[1:] = self.spared
        here_in, here_out = missed[1:] - missed[:-1], spared[1:] - spared[:-1]
        # Counted in halves: a member beats the non-members below it, and half of those with the same score. The same holds for non-members.
        won, beaten = spared[1:] + spared[:-1], missed[1:] + missed[:-1]
        area = float(here_in @ won) / (2 * self.members * self.non_members)
        variance = 0.0
        for here, halves, count, pairs in (
            (here_in, won, self.members, 2 * self.non_members),
            (here_out, beaten, self.non_members, 2 * self.members),
        ):
            if count > 1:
                halves -= float(here @ halves) / count
                variance += float(here @ np.square(halves, out=halves)) / pairs**2 / (count - 1) / count
        return area, variance

    def balanced_accuracy(self) -> float:
        """Return the largest (TPR + 1 − FPR)/2 over all thresholds."""
        gain = np.multiply(self.spared, self.members, dtype=np.int64)
        gain -= np.multiply(self.missed, self.non_members, dtype=np.int64)
        return (1 + max(0, int(gain.max())) / (self.members * self.non_members)) / 2

    def called(self, share: float) -> tuple[int, int]:
        """Count members and non-members among the highest-scoring records, up to this share of all records."""
        records = self.members + self.non_members
        vertex = int(np.searchsorted(self._ends, COUNT(records - math.floor(share * records))))
        return self.members - int(self.missed[vertex]), self.non_members - int(self.spared[vertex])

    def true_positives(self, fprs: Float[np.ndarray, " x"]) -> Int[np.ndarray, " x"]:
        """Return, per FPR x, the largest number of true positives while false positives are at most a share x of the non-members."""
        return _true_positives(self.missed, self.spared, self.members, self.non_members, fprs)


class Rankings:
    """Rankings of several targets at once, from float32 scores [N records, C columns] without NaN. One call sorts many short columns."""

    def __init__(self, scores: Float[np.ndarray, "N C"], member: Bool[np.ndarray, "N C"]) -> None:
        """Rank every column's records."""
        records, columns = scores.shape
        keys = _integers(np.ascontiguousarray(scores.T).ravel()).reshape(columns, records)
        keys <<= 1
        keys |= member.T
        keys.sort(axis=1)
        self._inside = keys & 1
        keys >>= 1
        self._last = np.ones(keys.shape, dtype=bool)
        np.not_equal(keys[:, 1:], keys[:, :-1], out=self._last[:, :-1])
        self._tied = not self._last.all()
        self._missed = np.cumsum(self._inside, axis=1, dtype=COUNT)
        self._ends = np.arange(1, records + 1, dtype=COUNT)
        self.members: Int[np.ndarray, " C"] = self._missed[:, -1].astype(np.int64)
        self.non_members: Int[np.ndarray, " C"] = records - self.members

    def auc(self) -> Float[np.ndarray, " C"]:
        """Return every column's area under the curve, ties at ½."""
        if not self._tied:  # the area follows from the sum of the members' ranks (Mann and Whitney 1947)
            ranks = self._inside.astype(np.float64) @ self._ends.astype(np.float64)
            return (ranks - self.members * (self.members + 1) / 2) / (self.members * self.non_members)  # type: ignore[no-any-return]
        vertices = self._last.sum(axis=1)
        starts = np.cumsum(vertices) - vertices
        missed, ends = self._missed[self._last], np.broadcast_to(self._ends, self._last.shape)[self._last]
        gained, spared = np.diff(missed, prepend=COUNT(0)), ends - missed
        gained[starts] = missed[starts]
        beaten = spared.astype(np.int64)
        beaten[1:] += spared[:-1]
        beaten[starts] = spared[starts]
        areas: Float[np.ndarray, " C"] = np.add.reduceat(gained * beaten, starts) / (
            2 * self.members * self.non_members
        )
        return areas

    def balanced_accuracy(self) -> Float[np.ndarray, " C"]:
        """Return every column's largest (TPR + 1 − FPR)/2 over all thresholds."""
        gain = (
            self._ends * self.members[:, None]
        )  # (spared × members − missed × non-members), since ends are both together
        gain -= self._missed.astype(np.int64) * (self.members + self.non_members)[:, None]
        if self._tied:
            gain[~self._last] = 0
        most = np.maximum(gain.max(axis=1), 0)
        accuracies: Float[np.ndarray, " C"] = (1 + most / (self.members * self.non_members)) / 2
        return accuracies

    def true_positives(self, fprs: Float[np.ndarray, " x"]) -> Int[np.ndarray, "C x"]:
        """Return `Ranking.true_positives` per column and FPR."""
        counts = [
            _true_positives(missed[last], (self._ends - missed)[last], int(members), int(non_members), fprs)
            for missed, last, members, non_members in zip(
                self._missed, self._last, self.members, self.non_members, strict=True
            )
        ]
        return np.stack(counts)


def _true_positives(
    missed: np.ndarray, spared: np.ndarray, members: int, non_members: int, fprs: Float[np.ndarray, " x"]
) -> Int[np.ndarray, " x"]:
    """Return, per FPR, the number of members above the lowest vertex allowed. Vertices are in ascending order of score."""
    allowed = np.floor(fprs * non_members)
    allowed += (allowed + 1) / non_members <= fprs  # x · n may round to either side of an integer
    allowed -= allowed / non_members > fprs
    vertex = np.searchsorted(spared, (non_members - allowed).astype(COUNT))
    counts: Int[np.ndarray, " x"] = members - np.where(allowed < non_members, missed[vertex], 0)
    return counts


def _sorted(scores: Scores, member: Member) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores in ascending order, or integers with the same ranks and ties, and 1 for each score of a member."""
    if scores.dtype != np.float32:
        order = np.argsort(scores)
        return scores[order], member[order]
    keys = _integers(scores)
    keys <<= 1
    keys |= member
    keys.sort()  # sorting values is faster than finding an order, and three times as fast in 32 bits as in 64
    return keys >> 1, keys & 1


def _integers(scores: Scores) -> Int[np.ndarray, " n"]:
    """Return integers with the same ranks and ties as float32 scores, and one unused bit.

    A float's bits without the sign are ordered like the integer that they represent. No score lies between 0 and the
    smallest absolute score: closing this gap frees a bit, unless scores differ by a factor of 2¹²⁸.
    """
    bits = scores.view(np.int32) if scores.flags.c_contiguous else scores.copy().view(np.int32)
    sizes = bits & 0x7FFFFFFF
    gap = sizes.min(where=sizes > 0, initial=0x7F800000) - 1
    if sizes.max(initial=0) - gap >= 1 << 30:
        sizes = sizes.astype(np.int64)
    sizes -= gap
    np.maximum(sizes, 0, out=sizes)
    sign = bits >> 31  # 0 or −1
    sizes ^= sign
    sizes -= sign
    return sizes
