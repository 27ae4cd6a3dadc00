"""The tester plays a game on every pair of neighbouring inputs, and returns a counterexample or the best bound."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal, cast

from mia_audit.errors import UserError
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.proving.events import FIRST_OF_ALL, Above, Event, best_event, rarer_events, unseen_fact
from mia_audit.proving.mechanism import Claim, Finding, Mechanism, Pair, Verdict
from mia_audit.proving.observation import Observation, observe, scratch_folder
from mia_audit.proving.probes import seed_bits
from mia_audit.proving.sequential import Evidence

FIRST = 200
"""Number of trials of every game before only the most promising games continue."""
PROMISING = 3
"""Number of games that are played to the end."""
ROUNDS = 4
"""Number of rounds, in each of which an event is chosen from all earlier trials."""
GROWTH = 4
"""Ratio of a round's trials to all earlier ones."""
LEARNED = 10_000
"""Maximum number of trials on each input from which events are learned. For later trials only counts are kept."""
LOOKS = 50
"""Largest ratio of all earlier trials to the trials in a chunk.

The evidence is evaluated after every chunk, which takes longer than a run of a fast mechanism.
"""
FIRST_SHARE = 0.6
"""Share of the time that all games together have before only the most promising games continue."""
PILOT_SHARE = 0.5
"""Largest share of a game's time for a slow mechanism's pilot."""
CHUNK = 20
"""Smallest number of trials between two evaluations of the evidence."""
SHOWN = 100
"""Largest length of a fact in an error."""
SINGLE = "one release"
"""The name of the check on every pair."""
JOINT = 3
"""Number of pairs of inputs on which two releases under one seed are tried."""


@dataclass(frozen=True)
class Limits:
    """Limits of a test: trials per input of a game and of its pilot, the joint level α of all claims, seconds, and a seed."""

    trials: int = 20_000
    pilot: int = 100
    alpha: float = 0.01
    seconds: float = 240.0
    seed: int = 0


@dataclass
class Bet:
    """An event, with its counts in trials after its choice, and its share of the round's level."""

    event: Event
    share: float
    evidence: Evidence = field(default_factory=Evidence)


@dataclass
class Round:
    """The chosen best event and rarer events within it, with counts from the same trials."""

    best: Bet
    rarer: list[Bet]
    hopeless: bool = False
    """Whether the best event provably refutes nothing."""

    @classmethod
    def on(cls, first: Sequence[Observation], second: Sequence[Observation], claim: Claim, rare: bool) -> Round:
        """Choose events from all observations so far. If there are several, the best one gets half of the level."""
        best = best_event(first, second, claim)
        rarer = rarer_events(best, first, second) if rare else []
        return cls(Bet(best, 0.5 if rarer else 1.0), [Bet(event, 0.5 / len(rarer)) for event in rarer])

    @property
    def bets(self) -> list[Bet]:
        """All events of the round."""
        return [self.best, *self.rarer]

    def count(self, on_first: Sequence[Observation], on_second: Sequence[Observation]) -> None:
        """Count pairs of trials; a rarer event occurs where the score of the best event exceeds the rarer event's threshold."""
        sides = (on_first, on_second) if self.best.event.on_first else (on_second, on_first)
        if not self.rarer:
            self.best.evidence.add(*map(self.best.event.occurred, sides))
            return
        assert isinstance(self.best.event.occurs, Above)
        scores = [self.best.event.occurs.scores(side) for side in sides]
        for bet in self.bets:
            assert isinstance(bet.event.occurs, Above)
            bet.evidence.add(*(score > bet.event.occurs.threshold for score in scores))


@dataclass
class Bets:
    """All rounds of bets against one claim, on the trials of a game."""

    claim: Claim
    rare: bool
    """Whether to bet on rarer events too: (ε, δ)-DP reaches its ε there."""
    level: float = 0.01
    """α of all rounds together."""
    rounds: list[Round] = field(default_factory=list)

    @property
    def round_level(self) -> float:
        """α of a round."""
        return self.level / ROUNDS

    @property
    def refuted(self) -> bool:
        """Whether one of the rounds refutes the claim."""
        return any(
            bet.evidence.log_wealth(self.claim.epsilon, self.claim.delta) >= -math.log(self.round_level * bet.share)
            for one in self.rounds
            for bet in one.bets
        )

    @property
    def hopeless(self) -> bool:
        """Whether the event of the last round provably refutes nothing."""
        return bool(self.rounds) and self.rounds[-1].hopeless

    def choose(self, seen: tuple[list[Observation], list[Observation]], trials: int) -> None:
        """Begin another round if the current event can refute nothing, or if a better one may be learned from later trials."""
        if self.rounds:
            current = self.rounds[-1]
            grown = trials >= GROWTH * (trials - current.best.evidence.trials)
            if len(self.rounds) == ROUNDS or not (current.hopeless or grown):
                return
        self.rounds.append(Round.on(*seen, self.claim, self.rare))

    def count(self, on_first: Sequence[Observation], on_second: Sequence[Observation]) -> None:
        """Count pairs of trials for every round. Events of earlier rounds have more trials."""
        for one in self.rounds:
            one.count(on_first, on_second)
        current = self.rounds[-1]
        against = current.best.evidence.log_wealth_for(self.claim.epsilon, self.claim.delta)
        current.hopeless = against >= -math.log(self.round_level)

    def largest(self, bound: Callable[[Evidence, float], float]) -> tuple[float, Bet]:
        """Return the largest bound of all bets, each at its own level, and the bet. If bounds are equal, the one with the most trials is returned."""
        bets = [bet for one in self.rounds for bet in one.bets]
        bounds = [bound(bet.evidence, self.round_level * bet.share) for bet in bets]
        return max(zip(bounds, bets, strict=True), key=lambda pair: (pair[0], pair[1].evidence.trials))


@dataclass(eq=False)
class Game:
    """A mechanism (or several releases of it) on two neighbouring inputs, and the observations so far."""

    mechanism: Mechanism
    check: str
    pair: Pair
    claim: Claim
    release: Callable[[Any, int], Any]
    alpha: float = 0.01
    trials: int = 0
    seen: tuple[list[Observation], list[Observation]] = field(default_factory=lambda: ([], []))
    """The first trials, from which events are learned."""
    against: list[Bets] = field(init=False)
    """Bets against the claim and, if Gaussian DP implies the claim, against that Gaussian DP."""

    def __post_init__(self) -> None:
        self.against = [Bets(self.claim, rare=True)]
        if self.claim.apart is not None:
            self.against.append(Bets(self.claim.apart, rare=False))

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted."""
        return any(bets.refuted for bets in self.against)

    @property
    def promise(self) -> tuple[bool, float, float]:
        """The rank of a game: first whether an event contradicts the claim, then the proved share of the claim, then the event's worth.

        A contradicting event comes first because a slow mechanism's game may end before the event can prove anything.
        """
        worths = [best_event(*self.seen, bets.claim).worth if self.seen[0] else -math.inf for bets in self.against]
        return max(worths) > FIRST_OF_ALL, self.finding().reached or 0.0, worths[0]

    def play(self, trials: int, limits: Limits, deadline: float, to_the_end: bool = False) -> None:
        """Play until this many trials, a decision or the deadline.

        Each round's event is chosen from the trials of all earlier rounds. The game also ends if its events provably
        refute nothing, unless it is played `to_the_end` for its bound.
        """
        started = time.monotonic()
        for bets in self.against:
            bets.level = self.alpha / len(self.against)
        while self.trials < limits.pilot:
            self._trial(limits)
            if time.monotonic() - started > PILOT_SHARE * (deadline - started) and self.trials >= CHUNK:
                break
        while self.trials < limits.pilot + trials and time.monotonic() < deadline:
            for bets in self.against:
                bets.choose(self.seen, self.trials)
            chunk = [self._trial(limits) for _ in range(max(CHUNK, self.trials // LOOKS))]
            for bets in self.against:
                bets.count(*zip(*chunk, strict=True))
            if self.refuted or (not to_the_end and all(bets.hopeless for bets in self.against)):
                return

    def _trial(self, limits: Limits) -> tuple[Observation, Observation]:
        """Run once on each input, each time with 128 new random bits."""
        observed = []
        for side, (records, seen) in enumerate(zip((self.pair.first, self.pair.second), self.seen, strict=True)):
            key = f"{limits.seed}/{self.mechanism.name}/{self.check}/{self.pair.name}/{side}/{self.trials}"
            secret = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "big")
            observed.append(observe(lambda records=records, secret=secret: self.release(records, secret)))  # type: ignore[misc]
            if len(seen) < LEARNED:
                seen.append(observed[-1])
        self.trials += 1
        return observed[0], observed[1]

    def _raised(self) -> str:
        """Return the exception of every run; empty if a run succeeded."""
        raised = [[fact for fact in one.facts if fact.startswith("raises")] for side in self.seen for one in side]
        return raised[0][0] if raised and all(raised) and len({one[0] for one in raised}) == 1 else ""

    def finding(self) -> Finding:
        """Return the finding from the bets with the largest bound."""
        name = f"{self.check}: {self.pair.name}"
        if not all(bets.rounds for bets in self.against):
            return Finding(self.mechanism.name, name, "skipped", "no time left")
        if raised := self._raised():
            return Finding(self.mechanism.name, name, "skipped", f"every run {raised}")
        delta, verdict = self.claim.delta, "refuted" if self.refuted else "held"
        bound, best = self.against[0].largest(lambda evidence, alpha: evidence.lower_bound(alpha, delta))
        gaussian = None
        if len(self.against) > 1:
            apart, central = self.against[1].largest(Evidence.total_variation)
            gaussian = epsilon_of_gdp(2 * NormalDist().inv_cdf((1 + min(apart, 1 - 1e-12)) / 2), delta)
            if not self.against[0].refuted and gaussian > bound:
                best = central
        counts = (best.evidence.on_first, best.evidence.on_second)
        return Finding(
            self.mechanism.name,
            name,
            cast(Literal["refuted", "held"], verdict),
            best.event.description,
            self.claim,
            bound,
            1 - self.alpha,
            best.evidence.trials,
            counts if best.event.on_first else counts[::-1],
            (self.pair.first, self.pair.second),
            gaussian,
        )


def games(mechanism: Mechanism) -> Iterator[Game]:
    """Yield the games of a mechanism: one release for every pair and, for some pairs, two releases under one seed."""
    for pair in mechanism.pairs:
        yield Game(mechanism, SINGLE, pair, mechanism.claim, mechanism.run)
    for pair in mechanism.pairs[:JOINT]:
        if mechanism.other is not None:
            # the other release comes from an input that is independent of the pair, so it reveals nothing about the pair
            yield Game(mechanism, "two releases under one seed", pair, mechanism.claim, _beside(mechanism))
        if mechanism.terms:
            together = mechanism.claim
            for _ in mechanism.terms:
                together = Claim(
                    together.epsilon + mechanism.claim.epsilon,
                    together.delta + mechanism.claim.delta,
                    together.adjacency,
                )
            yield Game(mechanism, "other terms under one seed", pair, together, _on_all_terms(mechanism))


def _beside(mechanism: Mechanism) -> Callable[[Any, int], Any]:
    def release(records: Any, secret: int) -> Any:
        return [mechanism.run(records, secret), mechanism.run(mechanism.other, secret)]

    return release


def _on_all_terms(mechanism: Mechanism) -> Callable[[Any, int], Any]:
    def release(records: Any, secret: int) -> Any:
        return [mechanism.run(records, secret), *(mechanism.run(records, secret, **terms) for terms in mechanism.terms)]

    return release


def prove(name: str, mechanisms: Sequence[Mechanism], limits: Limits | None = None) -> Verdict:
    """Try to refute the claims of a target's mechanisms; stop at the first counterexample.

    Every game has an equal share of the level, so that all findings hold together at 1 − α. First every game is played
    for a few hundred trials, then the games with the largest bounds are played to the end.
    """
    limits = limits or Limits()
    started = time.monotonic()
    deadline = started + limits.seconds
    listed = [game for mechanism in mechanisms for game in games(mechanism)]
    for game in listed:
        game.alpha = limits.alpha / len(listed)
    findings: list[Finding] = []

    def refuted(finding: Finding) -> bool:
        findings.append(finding)
        return finding.verdict == "refuted"

    def verdict() -> Verdict:
        return Verdict(name, mechanisms[0].claim, findings, time.monotonic() - started)

    with scratch_folder():
        for mechanism in mechanisms:
            for probe in (*mechanism.probes, *([seed_bits] if mechanism.secret_seed else [])):
                if refuted(probe(mechanism)):
                    return verdict()
        share = FIRST_SHARE * limits.seconds / max(1, len(listed))
        for game in listed:
            game.play(min(FIRST, limits.trials), limits, min(deadline, time.monotonic() + share))
            if game.refuted:
                refuted(game.finding())
                return verdict()
        promising = sorted(listed, key=lambda game: game.promise, reverse=True)[:PROMISING]
        single = [game for game in listed if game.check == SINGLE]
        promising = list(dict.fromkeys([max(single, key=lambda game: game.promise), *promising]))
        for place, game in enumerate(promising):
            game.play(limits.trials, limits, deadline, to_the_end=place == 0)
            if game.refuted:
                refuted(game.finding())
                return verdict()
    if unseen := next(filter(None, (unseen_fact(*game.seen) for game in listed)), ""):
        raise UserError(
            f"target '{name}': not tested: most runs differ in text or objects that no event covers, such as"
            f" “{' '.join(unseen.split())[:SHOWN]}”; return numbers instead, or text with few values"
        )
    findings += [game.finding() for game in listed]
    if listed and all(finding.verdict == "skipped" for finding in findings):
        raise UserError(f"target '{name}': nothing was tested: {findings[-1].detail}")
    return verdict()
