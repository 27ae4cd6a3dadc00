"""Learn the event that best distinguishes two neighbouring inputs, from a pilot that is not used for decisions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.proving.mechanism import Claim
from mia_audit.proving.observation import Observation
from mia_audit.proving.sequential import RANGE, SHARES

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FACTS = 200
"""Largest number of facts, and of repeated values, that are tried as events."""
ADDRESS = " at 0x"
"""Part of the representation of an object that is shown by its address only."""
REPEATED = 3
"""Smallest number of occurrences in the pilot of a value that is tried as an event of its own."""
RIDGES = (1.0, 1e-2, 1e-4, 1e-8)
"""Ridges of linear discriminants: smaller ridges give more weight to directions without noise, but have larger errors if the pilot is small."""
QUADRATIC = 64
"""Largest number of values in an output whose squares are also features."""
FAR = 1e4
"""Features are clipped at this many standard deviations from the median."""
CAUTION, HOPE = 0.01, 0.3
"""Levels of the bounds by which events are compared: events with support from few trials rank lower."""
MARGIN = 10.0
"""Amount subtracted from the worth of events that only the less cautious bounds (level `HOPE`) support."""

RARER = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5)
"""Probabilities of the rarer events that are tried; they are estimated on the input on which the event is less likely."""
SEEN = 3
"""Smallest number of scores beyond an empirical quantile.

With fewer, the quantile of the normal distribution with the scores' mean and deviation is used.
"""

FIRST_OF_ALL = 1000.0
"""Number added to the worth of events that contradict the claim, so that they come first."""

Features = Callable[[np.ndarray], np.ndarray]
"""Maps numbers [t, p] to one score [t]."""


@dataclass(frozen=True)
class Above:
    """The test whether a score of an output's numbers exceeds a threshold; false unless there are `size` numbers."""

    score: Features
    threshold: float
    size: int

    def scores(self, observations: Sequence[Observation]) -> Float[np.ndarray, " t"]:
        """Return the scores of runs, −∞ for numbers of another length."""
        fits = np.fromiter((len(one.numbers) == self.size for one in observations), dtype=bool, count=len(observations))
        scores = np.full(len(observations), -np.inf)
        if fits.any():
            scores[fits] = self.score(_matrix(observations, self.size))
        return scores


@dataclass(frozen=True)
class Event:
    """A set of outputs, and the index of the input on which it is more likely."""

    description: str
    occurs: Callable[[Observation], bool] | Above
    on_first: bool
    worth: float
    """The event's worth in the pilot (see `_worth`)."""

    def occurred(self, observations: Sequence[Observation]) -> Bool[np.ndarray, " t"]:
        """Return a mask of the runs in which the event occurred."""
        if isinstance(self.occurs, Above):
            return np.asarray(self.occurs.scores(observations) > self.occurs.threshold)
        return np.fromiter(map(self.occurs, observations), dtype=bool, count=len(observations))


def best_event(first: Sequence[Observation], second: Sequence[Observation], claim: Claim) -> Event:
    """Return the event that contradicts the claim most strongly; directions are learned from one half of the pilot, thresholds from the other."""
    events = [*_facts(first, second, claim), *_values(first, second, claim), *_numbers(first, second, claim)]
    return max(events, key=lambda event: event.worth)


def rarer_events(event: Event, first: Sequence[Observation], second: Sequence[Observation]) -> list[Event]:
    """Return rarer events, in which the same score exceeds higher thresholds. There are none if the event has no threshold.

    A Gaussian mechanism reaches its ε at its rarest outputs, which a small pilot does not contain. Which event is best
    depends on the number of trials.
    """
    from scipy.special import ndtri

    above = event.occurs
    if not isinstance(above, Above):
        return []
    unlikely = above.scores(second if event.on_first else first)
    unlikely = np.sort(unlikely[np.isfinite(unlikely)])[::-1]
    if len(unlikely) < 2:
        return []
    normal = unlikely.mean() - unlikely.std() * ndtri(np.array(RARER))
    places = [math.floor(share * len(unlikely)) for share in RARER]
    thresholds = [float(unlikely[at] if at >= SEEN else beyond) for at, beyond in zip(places, normal, strict=True)]
    name = event.description.rpartition(" above ")[0]
    return [
        Event(f"{name} above {cut:.6g}", Above(above.score, cut, above.size), event.on_first, event.worth)
        for cut in dict.fromkeys(thresholds)
        if cut > above.threshold
    ]


def _worth(on_first: np.ndarray, on_second: np.ndarray, trials: int, claim: Claim) -> Float[np.ndarray, " k"]:
    """Return the worth of events, from cautious bounds p and q on their probabilities on either side.

    Events that contradict the claim come first; their worth is the growth rate of the wealth from betting against the
    claim. The worth of other events is log((p − δ)/q), with less cautious bounds if this is not above 0.
    """
    p, q = _bounds(on_first, on_second, trials, CAUTION)
    ratio = math.exp(min(claim.epsilon, RANGE))
    growth = np.full(p.shape, -np.inf)
    for share in SHARES:
        bet = share / (ratio + claim.delta)
        logs = [math.log1p(bet * (x - ratio * y - claim.delta)) for x, y in ((1, 1), (1, 0), (0, 1), (0, 0))]
        mean = p * q * logs[0] + p * (1 - q) * logs[1] + (1 - p) * q * logs[2] + (1 - p) * (1 - q) * logs[3]
        growth = np.maximum(growth, mean)
    cautious = np.log(np.maximum(p - claim.delta, 1e-9) / q)
    p, q = _bounds(on_first, on_second, trials, HOPE)
    hopeful = np.log(np.maximum(p - claim.delta, 1e-9) / q) - MARGIN
    return np.asarray(np.where(growth > 0, FIRST_OF_ALL + growth, np.where(cautious > 0, cautious, hopeful)))


def _bounds(on_first: np.ndarray, on_second: np.ndarray, trials: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a lower bound on the first probability and an upper bound on the second (Clopper and Pearson)."""
    from scipy.special import betaincinv

    p = np.where(on_first > 0, betaincinv(np.maximum(on_first, 1), trials - on_first + 1, level), 0.0)
    q = np.where(on_second < trials, betaincinv(on_second + 1, np.maximum(trials - on_second, 1), 1 - level), 1.0)
    return p, q


def _better(
    description: str,
    occurs: Callable[[Observation], bool],
    first: Sequence[Observation],
    second: Sequence[Observation],
    claim: Claim,
) -> Iterator[Event]:
    counts = np.array([sum(map(occurs, side)) for side in (first, second)])
    trials = len(first)
    for sign, counted in ((True, counts), (False, trials - counts)):
        happens = occurs if sign else (lambda one: not occurs(one))
        text = description if sign else f"not: {description}"
        for on_first, (a, b) in ((True, counted), (False, counted[::-1])):
            yield Event(text, happens, on_first, float(_worth(np.array(a), np.array(b), trials, claim)))


def _facts(first: Sequence[Observation], second: Sequence[Observation], claim: Claim) -> Iterator[Event]:
    for fact in _tried(first, second):
        yield from _better(fact, lambda one, fact=fact: fact in one.facts, first, second, claim)  # type: ignore[misc]


def _tried(first: Sequence[Observation], second: Sequence[Observation]) -> list[str]:
    """Return the facts that are tried as events, out of those that not every run shows."""
    known = Counter(fact for one in (*first, *second) for fact in one.facts)
    varying = [item for item in known.items() if item[1] < len(first) + len(second)]
    # of equally good facts the first is reported: an exception, not the missing outputs
    ranked = sorted(varying, key=lambda item: (item[0].startswith("output"), -item[1], item[0]))
    return [fact for fact, _ in ranked[:FACTS]]


def unseen_fact(first: Sequence[Observation], second: Sequence[Observation]) -> str:
    """Return a fact of a kind that no event can show, if most runs on an input have one; otherwise an empty string.

    These are facts of a single run, more facts than are tried, and the addresses of objects.
    """
    known = Counter(fact for one in (*first, *second) for fact in one.facts)
    tried = set(_tried(first, second))
    runs = len(first) + len(second)
    blind = {
        fact for fact, count in known.items() if ADDRESS in fact or count == 1 or (count < runs and fact not in tried)
    }
    for side in (first, second):
        unseen = [one.facts & blind for one in side if one.facts & blind]
        if len(unseen) > len(side) / 2:
            return min(unseen[0])
    return ""


def _values(first: Sequence[Observation], second: Sequence[Observation], claim: Claim) -> Iterator[Event]:
    known = Counter(one.value for one in (*first, *second))
    for value, count in known.most_common(FACTS):
        if count >= REPEATED:
            text = f"the numbers are {_short(np.frombuffer(value))}"
            yield from _better(text, lambda one, value=value: one.value == value, first, second, claim)  # type: ignore[misc]


def _numbers(first: Sequence[Observation], second: Sequence[Observation], claim: Claim) -> Iterator[Event]:
    """Yield the best threshold of every score of the numbers; these events exclude outputs of another length."""
    size = Counter(len(one.numbers) for one in (*first, *second)).most_common(1)[0][0]
    if size == 0:
        return
    half = len(first) // 2
    learned = [_matrix(side[:half], size) for side in (first, second)]
    tried = [_matrix(side[half:], size) for side in (first, second)]
    if not all(map(len, learned)) or not all(map(len, tried)):
        return
    trials = len(first) - half
    for name, score in _scores(*learned):
        scores = [score(side) for side in tried]
        cuts = np.unique(np.concatenate(scores))
        cuts = cuts[:-1] / 2 + cuts[1:] / 2
        if not len(cuts):
            continue
        above = [len(side) - np.searchsorted(np.sort(side), cuts, side="right") for side in scores]
        for on_first, (a, b) in ((True, above), (False, above[::-1])):
            worth = _worth(a, b, trials, claim)
            best = int(np.argmax(worth))
            yield Event(
                f"{name} above {cuts[best]:.6g}", Above(score, float(cuts[best]), size), on_first, float(worth[best])
            )


def _matrix(side: Sequence[Observation], size: int) -> Float[np.ndarray, "t p"]:
    return np.array([one.numbers for one in side if len(one.numbers) == size]).reshape(-1, size)


def _scores(first: Float[np.ndarray, "t p"], second: Float[np.ndarray, "t p"]) -> Iterator[tuple[str, Features]]:
    """Yield scores that are larger on the first input, and their negatives: discriminants, single numbers, lengths."""
    both = np.concatenate([first, second])
    middle = np.median(both, axis=0)
    spread = np.median(np.abs(both - middle), axis=0)
    with np.errstate(over="ignore"):
        deviation = np.minimum(both.std(axis=0), 1e300)
    spread = np.where(spread > 0, spread, np.where(deviation > 0, deviation, 1.0))

    def standard(numbers: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.asarray(np.clip((numbers - middle) / spread, -FAR, FAR))

    def squared(numbers: np.ndarray) -> np.ndarray:
        scaled = standard(numbers)
        return np.concatenate([scaled, scaled**2], axis=1)

    maps = [("a linear score", standard)] + ([("a quadratic score", squared)] if first.shape[1] <= QUADRATIC else [])
    for name, features in maps:
        for direction in _directions(features(first), features(second)):
            yield name, lambda numbers, f=features, d=direction: f(numbers) @ d  # type: ignore[misc]
    apart = np.abs(standard(first).mean(axis=0) - standard(second).mean(axis=0))
    for column in np.argsort(-apart)[:3]:
        for sign in (1, -1):
            yield f"{'' if sign > 0 else 'minus '}number {column}", lambda x, c=column, s=sign: s * x[:, c]  # type: ignore[misc]
    for sign in (1, -1):
        yield "a length", lambda x, s=sign: s * np.linalg.norm(standard(x), axis=1)  # type: ignore[misc]


def _directions(first: Float[np.ndarray, "t f"], second: Float[np.ndarray, "t f"]) -> Iterator[Float[np.ndarray, " f"]]:
    """Yield the difference of the means, and Fisher's discriminants by ridge."""
    difference = first.mean(axis=0) - second.mean(axis=0)
    yield difference
    centred = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    largest = max(float(values[-1]), 1e-12)
    turned = vectors.T @ difference
    for ridge in RIDGES:
        yield vectors @ (turned / (np.maximum(values, 0) + ridge * largest))


def _short(numbers: Float[np.ndarray, " p"]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in numbers[:4])
    return f"[{shown}{', …' if len(numbers) > 4 else ''}]"
