"""A game on two neighbouring inputs: the observer sees all numbers, exceptions, warnings and messages of a release, and no noise."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mia_audit.privacy.gaussian import mu_for

from .sequential import Evidence

LARGEST = 1e300
RIDGES = (1.0, 1e-2, 1e-4, 1e-8)
LEVEL = 0.01


@dataclass(frozen=True)
class Claim:
    """(ε, δ)-DP; a `gaussian` claim follows from μ-GDP, which is then claimed too and needs far fewer trials."""

    epsilon: float
    delta: float
    gaussian: bool = True

    @property
    def tested(self) -> list[tuple[float, float]]:
        """The (ε, δ) to refute: the claim, and what μ-GDP says of the most distinguishing event (Dong et al. 2022)."""
        apart = math.erf(mu_for(self.epsilon, self.delta) / math.sqrt(8)) if self.gaussian else None
        return [(self.epsilon, self.delta)] + ([] if apart is None else [(0.0, apart)])


@dataclass(frozen=True)
class Pair:
    """Two neighbouring inputs, in the form that the mechanism takes."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class Seen:
    """The numbers of a release in one vector, and everything else as sentences."""

    numbers: np.ndarray
    facts: frozenset[str]


Event = Callable[[Seen], bool]


@dataclass(frozen=True)
class Verdict:
    """Whether an event, chosen in trials that do not count, refutes the claim, and which."""

    refuted: bool
    event: str


def observed(call: Callable[[], Any]) -> Seen:
    """Run a mechanism; exceptions, warnings and written lines are part of what is seen."""
    parts: list[np.ndarray] = []
    facts: set[str] = set()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        warnings.simplefilter("always")
        try:
            _flatten(call(), parts, facts)
        except Exception as error:
            facts.add(f"raises {type(error).__name__}: {error}")
    foreign = DeprecationWarning, ResourceWarning  # the second may be of what another test left open
    facts.update(f"warns {one.message}" for one in warned if not issubclass(one.category, foreign))
    facts.update(f"says {line}" for text in (out, err) for line in text.getvalue().splitlines())
    return Seen(np.concatenate(parts) if parts else np.zeros(0), frozenset(facts))


def _flatten(value: Any, parts: list[np.ndarray], facts: set[str]) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    if hasattr(value, "_fields") or hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values()) if hasattr(value, "__dataclass_fields__") else list(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        facts.add(f"{len(value)} parts")
        for part in value:
            _flatten(part, parts, facts)
        return
    if value is None or isinstance(value, str):
        facts.add(f"is {value}")
        return
    array = np.asarray(value, dtype=float)
    facts.add(f"shape {array.shape}")
    for word, where in (("NaN", np.isnan(array)), ("infinite", np.isinf(array))):
        if where.any():
            facts.add(f"{where.sum()} {word}")
    parts.append(np.nan_to_num(array, nan=0.0, posinf=LARGEST, neginf=-LARGEST).ravel())


def play(run: Callable[[Any, int], Any], pair: Pair, claim: Claim, trials: int = 300, pilot: int = 100) -> Verdict:
    """Choose events in a pilot, then bet on them in further trials: a claim that holds is refuted with probability `LEVEL` at most."""

    def sides(first: int, count: int) -> list[list[Seen]]:
        found: list[list[Seen]] = []
        for side, data in enumerate((pair.first, pair.second)):
            secrets = [_secret(pair.name, side, one) for one in range(first, first + count)]
            found.append([observed(partial(run, data, secret)) for secret in secrets])
        return found

    learned = sides(0, pilot)
    bets = [
        (name, occurs, epsilon, delta, order)
        for epsilon, delta in claim.tested
        for order in (1, -1)
        for name, occurs in _best(learned[::order], epsilon, delta)
    ]
    later = sides(pilot, trials)
    for name, occurs, epsilon, delta, order in bets:
        evidence = Evidence()
        evidence.add(*(np.array([occurs(one) for one in side], dtype=bool) for side in later[::order]))
        if evidence.log_wealth(epsilon, delta) >= math.log(len(bets) / LEVEL):
            return Verdict(True, name)
    return Verdict(False, "")


def _secret(*names: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(names).encode(), digest_size=16).digest(), "big")


def _best(learned: list[list[Seen]], epsilon: float, delta: float) -> list[tuple[str, Event]]:
    """Return the best event of the facts and the best of the numbers, by P(S) − e^ε P(S′) in the pilot."""
    ratio = math.exp(epsilon)
    found: list[list[tuple[float, str, Event]]] = [[], []]
    for fact in sorted({fact for side in learned for one in side for fact in one.facts}):
        for sign in (True, False):
            p, q = (float(np.mean([(fact in one.facts) == sign for one in side])) for side in learned)
            found[0].append((p - ratio * q - delta, fact, lambda s, f=fact, k=sign: (f in s.facts) == k))  # type: ignore[misc]
    for score in _scores(learned):
        values = [np.array(list(map(score, side))) for side in learned]
        cuts = np.unique(np.concatenate(values))
        for cut in (cuts[:-1] + cuts[1:]) / 2:
            p, q = (float(np.mean(side > cut)) for side in values)
            found[1].append((p - ratio * q - delta, f"a score above {cut:.6g}", lambda s, f=score, c=cut: f(s) > c))  # type: ignore[misc]
    return [max(each, key=lambda item: item[0])[1:] for each in found if each]


def _scores(learned: list[list[Seen]]) -> Iterator[Callable[[Seen], float]]:
    """Yield linear and quadratic discriminants of the numbers, larger on the first input."""
    size = len(learned[0][0].numbers)
    if not size or any(len(one.numbers) != size for side in learned for one in side):
        return
    first, second = (np.array([one.numbers for one in side]) for side in learned)
    both = np.concatenate([first, second])
    middle, spread = np.median(both, axis=0), np.minimum(both.std(axis=0), LARGEST)
    spread = np.where(spread > 0, spread, 1.0)

    def linear(numbers: np.ndarray) -> np.ndarray:
        return np.clip((numbers - middle) / spread, -1e4, 1e4)

    def quadratic(numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([linear(numbers), linear(numbers) ** 2], axis=-1)

    for features in (linear, quadratic):
        one, other = features(first), features(second)
        difference = one.mean(axis=0) - other.mean(axis=0)
        centred = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        for ridge in RIDGES:
            shares = np.maximum(values, 0) + ridge * max(float(values[-1]), 1e-12)
            direction = vectors @ (vectors.T @ difference / shares)
            yield lambda s, f=features, d=direction: float(f(s.numbers) @ d)  # type: ignore[misc]
