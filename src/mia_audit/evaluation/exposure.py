"""Per-record exposure: how much a record's score depends on its membership, and what fresh models would reveal about it."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import compress, decompress

import numpy as np
from scipy.special import betaln, gammaln

from mia_audit.evaluation.metrics import called_above
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Bool, Float, Int


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


HALVES = "halves"
"""The metadata key of metrics.parquet for the counts of `Halves`."""

FEWEST_MODELS = 8
"""Two halves of fewer models have too few for an attack."""

PROBABILITIES = np.clip(np.sin(np.linspace(0, np.pi / 2, 25)) ** 2, 1e-3, 1 - 1e-3)
"""Probabilities of being called a member among which the posterior distributes a record."""

ITERATIONS = 200
COMPARED = 40
"""Largest number of records, chosen with one half, whose advantages in the other half show whether records differ."""
LEVEL, FLIPS = 0.001, 9999
"""Largest p-value of that comparison, and its number of random changes of sign."""
SINGLE = 0.004
"""Largest p-values, both of them, of a single record that stands out."""
EITHER = 0.2
"""Largest p-value of such a record's false alarms in either half: chance in one half is not repeated in the other."""


@dataclass(frozen=True)
class Halves:
    """How often each record, or person, is called a member by an attack in two halves of the models; matrices are [2 halves, N].

    Each half is attacked with its own models alone, so that both are independent given the record.
    """

    key: tuple[str, str, str]
    """Attack, signal and likelihood."""
    aggregate: str
    members: Int[np.ndarray, "2 N"]
    """Models trained on the record and scored."""
    others: Int[np.ndarray, "2 N"]
    gap: Float[np.ndarray, "2 N"]
    """Mean score with the record in the training set, minus that without; NaN if not known."""
    hits: Mapping[str, Int[np.ndarray, "2 N"]]
    """By FPR (as in names of columns), models trained on the record that call it a member."""
    alarms: Mapping[str, Int[np.ndarray, "2 N"]]

    @classmethod
    def from_scores(
        cls,
        key: tuple[str, str, str],
        aggregate: str,
        parts: Sequence[tuple[Float[np.ndarray, "N k"], Bool[np.ndarray, "N k"]]],
        fprs: Sequence[float],
    ) -> Halves:
        """Count calls in the scores and memberships of two halves; FPRs that some model cannot resolve are left out."""
        known = [(~np.isnan(scores) & member, ~np.isnan(scores) & ~member) for scores, member in parts]
        hits, alarms = {}, {}
        for fpr in fprs:
            if all(fpr * outside.sum(axis=0).min() >= 1 for _, outside in known):
                called = [called_above(scores, member, fpr) for scores, member in parts]
                both = [(call & inside, call & outside) for call, (inside, outside) in zip(called, known, strict=True)]
                hits[f"{fpr:g}"], alarms[f"{fpr:g}"] = (
                    np.stack([half[side].sum(axis=1) for half in both]) for side in (0, 1)
                )
        members, others = (np.stack([sides[side].sum(axis=1) for sides in known]) for side in (0, 1))
        gap = np.stack([exposure(scores, member)["gap"] for scores, member in parts])
        return cls(key, aggregate, members, others, gap, hits=hits, alarms=alarms)

    def packed(self) -> dict[str, Any]:
        """Return the counts as JSON, compressed."""
        counts = {"members": self.members, "others": self.others}
        counts |= {f"hits_{fpr}": values for fpr, values in self.hits.items()}
        counts |= {f"alarms_{fpr}": values for fpr, values in self.alarms.items()}
        columns = {name: _pack(values.astype("<u2")) for name, values in counts.items()}
        return {"attack": self.key, "aggregate": self.aggregate, "gap": _pack(self.gap.astype("<f4")), **columns}

    @classmethod
    def unpacked(cls, values: Mapping[str, Any]) -> Halves:
        """Read what `packed` returned."""
        counts = {
            name: _unpack(text, "<u2").astype(np.int64) for name, text in values.items() if name not in NOT_COUNTS
        }
        hits, alarms = (
            {name.removeprefix(kind): found for name, found in counts.items() if name.startswith(kind)}
            for kind in ("hits_", "alarms_")
        )
        attack, signal, likelihood = values["attack"]
        return cls(
            (attack, signal, likelihood),
            values["aggregate"],
            counts["members"],
            counts["others"],
            _unpack(values["gap"], "<f4").astype(np.float64),
            hits=hits,
            alarms=alarms,
        )


NOT_COUNTS = ("attack", "aggregate", "gap")


def _pack(values: np.ndarray) -> str:
    return b64encode(compress(np.ascontiguousarray(values).tobytes())).decode("ascii")


def _unpack(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(decompress(b64decode(text)), dtype=kind).reshape(2, -1)


@dataclass(frozen=True)
class Estimated:
    """Every record's probabilities on fresh models, as far as two halves of the models show (empirical Bayes).

    The probability of being called a member is `reveal` if a model was trained on the record, and `alarm` otherwise;
    their difference is the advantage, with `low` and `high` the limits of its posterior interval.
    """

    reveal: Float[np.ndarray, " N"]
    alarm: Float[np.ndarray, " N"]
    advantage: Float[np.ndarray, " N"]
    low: Float[np.ndarray, " N"]
    high: Float[np.ndarray, " N"]
    models: Int[np.ndarray, " N"]
    """Models whose scores of the record are counted."""
    order: Int[np.ndarray, " N"]
    """The records, the most exposed first as the first half of the models shows it."""
    differ: bool
    """Whether records chosen with the first half stand out in the second; if not, all have the means of `reveal` and `alarm`."""

    @property
    def largest(self) -> tuple[float, float, float]:
        """The largest advantage of any record, and the largest of each of its limits."""
        return float(self.advantage.max()), float(self.low.max()), float(self.high.max())

    @property
    def listed(self) -> Int[np.ndarray, " n"]:
        """The records whose advantage is above the mean of all, in `order`; none where records do not differ."""
        return self.order[self.low[self.order] > self.advantage.mean()] if self.differ else self.order[:0]


def estimated(halves: Halves, fpr: float, confidence: float = 0.95) -> Estimated | None:
    """Estimate every record's probabilities at an FPR; None if it was not counted.

    The prior is a distribution over pairs of probabilities on a grid that makes the counts of all records most likely
    (Kiefer and Wolfowitz 1956). Counts within a half have beta-binomial distributions, because its models share the
    attack's training; their correlation follows from the variances within and between halves.
    """
    name = f"{fpr:g}"
    if name not in halves.hits:
        return None
    likely = [
        _likelihoods(counts[name], trials)
        for counts, trials in ((halves.hits, halves.members), (halves.alarms, halves.others))
    ]
    inside, outside = (halves_of[0] * halves_of[1] for halves_of in likely)
    prior = _prior(inside, outside)
    reveal, alarm, advantage, low, high = _posterior(inside, outside, prior, confidence)
    first = _posterior(likely[0][0], likely[1][0], prior, None)[2]
    unknown = (halves.members == 0) | (halves.others == 0)
    first[unknown[0]] = -np.inf
    order = np.lexsort((-np.nan_to_num(halves.gap[0], nan=-np.inf), -first))
    models = (halves.members + halves.others).sum(axis=0)
    if _many_differ(order, halves, name) or _one_differs(halves, name):
        return Estimated(
            reveal=reveal, alarm=alarm, advantage=advantage, low=low, high=high, models=models, order=order, differ=True
        )
    reveal, alarm = (np.full_like(values, values.mean()) for values in (reveal, alarm))
    advantage = reveal - alarm
    low, high = np.minimum(low, advantage), np.maximum(high, advantage)
    return Estimated(
        reveal=reveal, alarm=alarm, advantage=advantage, low=low, high=high, models=models, order=order, differ=False
    )


def _likelihoods(counts: Int[np.ndarray, "2 N"], trials: Int[np.ndarray, "2 N"]) -> list[Float[np.ndarray, "N G"]]:
    """Return for each half the likelihood of every record's count at each of `PROBABILITIES`."""
    table = _chances(int(trials.max()), PROBABILITIES, _related(counts, trials))
    return [table[of, count] for of, count in zip(trials, counts, strict=True)]


def _chances(most: int, probability: Float[np.ndarray, " G"], related: float) -> Float[np.ndarray, "n k G"]:
    """Return beta-binomial probabilities of k of n calls, for all n up to `most`; 0 for k above n."""
    first, second = (one * (1 - related) / related for one in (probability, 1 - probability))
    n, k = np.arange(most + 1)[:, None, None], np.arange(most + 1)[None, :, None]
    less = np.minimum(k, n)
    ways = gammaln(n + 1) - gammaln(less + 1) - gammaln(n - less + 1)
    chances = np.exp(ways + betaln(less + first, n - less + second) - betaln(first, second))
    return np.where(k <= n, chances, 0.0)


def _related(counts: Int[np.ndarray, "2 N"], trials: Int[np.ndarray, "2 N"]) -> float:
    """Return the correlation of two calls of a record within a half, beyond the record's own probability."""
    known = (trials > 0).all(axis=0)
    if known.sum() < 2:
        return LEAST_RELATED
    shares = counts[:, known] / trials[:, known]
    mean, between = float(shares.mean()), float(np.cov(shares)[0, 1])
    chance = mean * (1 - mean) - max(between, 0.0)
    inverse = float((1 / trials[:, known]).mean())
    if chance <= 0 or inverse >= 1:
        return LEAST_RELATED
    excess = float(shares.var(axis=1, ddof=1).mean()) - max(between, 0.0)
    return float(np.clip((excess / chance - inverse) / (1 - inverse), LEAST_RELATED, 0.9))


LEAST_RELATED = 1e-3


def _prior(inside: Float[np.ndarray, "N G"], outside: Float[np.ndarray, "N G"]) -> Float[np.ndarray, "G G"]:
    """Return the distribution over pairs of probabilities, in and out, by EM; one record's weight is spread over all pairs."""
    size = len(PROBABILITIES)
    even = np.full((size, size), 1 / size**2)
    prior = even
    for _ in range(ITERATIONS):
        evidence = ((inside @ prior) * outside).sum(axis=1)
        prior = (prior * (inside.T @ (outside / evidence[:, None])) + even) / (len(inside) + 1)
    return prior


def _posterior(
    inside: Float[np.ndarray, "N G"],
    outside: Float[np.ndarray, "N G"],
    prior: Float[np.ndarray, "G G"],
    confidence: float | None,
) -> tuple[np.ndarray, ...]:
    """Return the posterior means of both probabilities and of their difference, and the limits of the difference."""
    gaps = (PROBABILITIES[:, None] - PROBABILITIES[None, :]).ravel()
    order = np.argsort(gaps, kind="stable")
    columns: list[list[np.ndarray]] = [[] for _ in range(5)]
    for start in range(0, len(inside), CHUNK):
        rows = slice(start, start + CHUNK)
        joint = inside[rows, :, None] * prior * outside[rows, None, :]
        joint /= joint.sum(axis=(1, 2), keepdims=True)
        means = joint.sum(axis=2) @ PROBABILITIES, joint.sum(axis=1) @ PROBABILITIES
        ends = [means[0] - means[1]] * 2
        if confidence is not None:
            below = joint.reshape(len(joint), -1)[:, order].cumsum(axis=1)
            tails = (1 - confidence) / 2, (1 + confidence) / 2
            ends = [gaps[order][np.minimum((below < p).sum(axis=1), len(gaps) - 1)] for p in tails]
        for column, values in zip(columns, (*means, means[0] - means[1], *ends), strict=True):
            column.append(values)
    return tuple(np.concatenate(column) for column in columns)


CHUNK = 1024


def _many_differ(order: Int[np.ndarray, " N"], halves: Halves, fpr: str) -> bool:
    """Return whether the first records in an order have larger advantages in the second half than all have, by random changes of sign."""
    with np.errstate(invalid="ignore", divide="ignore"):
        advantage = halves.hits[fpr][1] / halves.members[1] - halves.alarms[fpr][1] / halves.others[1]
    known = order[np.isfinite(advantage[order])]
    beyond = (advantage[known] - max(float(advantage[known].mean()), 0.0))[: min(COMPARED, len(known) // 10)]
    signs = generator("records differ").choice([-1.0, 1.0], size=(FLIPS, len(beyond)))
    larger = int((signs @ beyond >= beyond.sum() - 1e-12).sum())
    return (larger + 1) / (FLIPS + 1) <= LEVEL


def _one_differs(halves: Halves, fpr: str) -> bool:
    """Return whether a record is called by more models trained on it than all records are, and by too few others for that to be noise.

    The former is corrected for the number of records (Fisher's combination of both halves), the latter, given all calls
    of the record, for the number of records with as many.
    """
    hits, alarms, members, others = halves.hits[fpr], halves.alarms[fpr], halves.members, halves.others
    related, mean = _related(hits, members), float(hits.sum() / max(members.sum(), 1))
    if not 0 < mean < 1:
        return False
    tails = _chances(int(members.max()), np.array([mean]), related)[..., 0][:, ::-1].cumsum(axis=1)[:, ::-1]
    both = np.prod([tails[n, k] for n, k in zip(members, hits, strict=True)], axis=0)
    rare = both * (1 - np.log(both)) * len(both) <= SINGLE
    if not rare.any():
        return False
    from scipy.stats import hypergeom

    calls, every = hits + alarms, members + others
    chances = [
        hypergeom.sf(of[rare] - 1, total[rare], inside[rare], called[rare])
        for of, total, inside, called in (
            *zip(hits, every, members, calls, strict=True),
            (hits.sum(axis=0), every.sum(axis=0), members.sum(axis=0), calls.sum(axis=0)),
        )
    ]
    alike = np.array([(calls.sum(axis=0) >= one).sum() for one in calls.sum(axis=0)[rare]])
    return bool(((chances[2] * alike <= SINGLE) & (np.maximum(chances[0], chances[1]) <= EITHER)).any())


def exposure_columns(
    scores: Float[np.ndarray, "N K"], member: Bool[np.ndarray, "N K"], fpr: float | None, found: Estimated | None
) -> dict[str, np.ndarray]:
    """Return the columns of exposure.csv: estimates for fresh models, then means over this audit's models, and the rank by the former.

    Estimates are NaN where there are none; the rank is then that of the gap.
    """
    columns = exposure(scores, member)
    own: dict[str, np.ndarray] = {"models": (~np.isnan(scores)).sum(axis=1)}
    unknown = np.full(len(scores), np.nan)
    names = ("fpr", "revealed", "false_alarms", "advantage", "advantage_low", "advantage_high")
    if found is None or fpr is None:
        return own | dict.fromkeys(names, unknown) | columns
    estimates = (np.full(len(scores), fpr), found.reveal, found.alarm, found.advantage, found.low, found.high)
    place, rank = np.empty(len(scores), dtype=np.int64), np.empty(len(scores), dtype=np.int32)
    place[found.order] = np.arange(len(scores))
    rank[np.lexsort((place, -found.advantage))] = np.arange(1, len(scores) + 1)
    return own | dict(zip(names, estimates, strict=True)) | columns | {"rank": rank}
