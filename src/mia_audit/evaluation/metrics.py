"""Metrics of one target, exact for tied scores, with intervals over its records.

A single sort ranks a target's records. All metrics follow from the exact ROC curve, which has one vertex per distinct
score and is never interpolated, except in the wrong way in which the published code of Huang et al. 2024 reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtri

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
        return np.asarray((1 + most / (self.members * self.non_members)) / 2)

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
    return np.asarray(members - np.where(allowed < non_members, missed[vertex], 0))


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


def called_above(
    scores: Float[np.ndarray, "N C"], member: Bool[np.ndarray, "N C"], fpr: float
) -> Bool[np.ndarray, "N C"]:
    """Return the mask of rows called members at the common threshold of every column: the lowest with at most this FPR over all rows.

    The threshold is exact: false positives are at most `fpr` of the scored non-members, and tied scores are called
    members together or not at all. NaN scores are never called members.
    """
    outside = np.where(member | np.isnan(scores), -np.inf, scores)
    counts = (~member & ~np.isnan(scores)).sum(axis=0)
    called = np.zeros(scores.shape, dtype=bool)
    for column, count in enumerate(counts.tolist()):
        allowed = int(np.floor(fpr * count))
        allowed += count > 0 and (allowed + 1) / count <= fpr  # fpr · n may round to either side of an integer
        allowed -= count > 0 and allowed / count > fpr
        if allowed < count:
            next_highest = np.partition(outside[:, column], len(outside) - 1 - allowed)[len(outside) - 1 - allowed]
            called[:, column] = scores[:, column] > next_highest
        else:
            called[:, column] = ~np.isnan(scores[:, column])
    return called


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

    `targets` yields (scores, member) per target; each curve is read as a step function, never interpolated.
    """
    ranked = (Ranking(scores, member) for scores, member in targets)
    curves = np.array([ranking.true_positives(fprs) / ranking.members for ranking in ranked])
    sd = curves.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(fprs))
    return curves.mean(axis=0), sd


SHARES = (0.001, 0.01, 0.025, 0.1, 0.5, 0.9, 0.975, 0.99)
"""Shares of a target's scored records that are called members."""


def called_columns(share: float) -> tuple[str, str]:
    """Name the columns of metrics.parquet that count members and non-members among the highest-scoring share."""
    return f"members_in_top_{share:g}", f"non_members_in_top_{share:g}"


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


def tpr_at_fpr(scores: Scores, member: Member, fpr: float) -> float:
    """Return the largest TPR among the ROC curve's vertices with FPR ≤ `fpr`; 0 if only the origin qualifies."""
    ranking = Ranking(scores, member)
    return int(ranking.true_positives(np.array([fpr]))[0]) / ranking.members


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided interval of a proportion (Clopper and Pearson 1934)."""
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
    pairs = min(members, non_members)
    if value in (0.0, 1.0):
        return clopper_pearson(pairs if value else 0, pairs, confidence)
    half = float(ndtri((1 + confidence) / 2)) * np.sqrt(variance) / (value * (1 - value))
    centre = np.log(value / (1 - value))
    return float(1 / (1 + np.exp(half - centre))), float(1 / (1 + np.exp(-half - centre)))


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
