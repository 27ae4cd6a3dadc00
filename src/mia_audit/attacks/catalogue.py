"""The registry of attacks, the section of a config for them, and their runs on signals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
from pydantic import NonNegativeInt, field_validator, model_validator

from mia_audit.attacks.design import recognise
from mia_audit.attacks.engine.joint import AT_MOST
from mia_audit.errors import UserError, suggest
from mia_audit.registry import Registry
from mia_audit.sections import Section, known
from mia_audit.seeds import generator
from mia_audit.signals.name import Reading, Signal

if TYPE_CHECKING:
    from jaxtyping import Float

    from mia_audit.pools.persons import Persons
    from mia_audit.signals.name import Cells, Member

    Reads = Callable[[Sequence[Signal]], list[tuple[Signal, ...]]]
    Score = Callable[..., Float[np.ndarray, "N K"]]


@dataclass(frozen=True)
class Attack:
    """A method that turns signals into membership scores.

    `reads` selects signals from those of a setting, and returns one tuple for each run of the attack. `score(readings,
    member, likelihood)` turns the readings of one tuple, the membership [N records, K targets] and the name of a
    likelihood into scores [N, K]. A higher score means member, NaN means no score. `likelihoods` lists those that the
    attack supports, the default first. An attack without likelihoods is called with `none`. `learns` says that the
    scores depend on the membership of the other models. Such an attack has a null control. `several` says that the
    attack can read more than one signal at once; `vectors` says that it reads attributions themselves, over their L1
    norms, [N records, K models, m], which no other attack is given.

    Intervals over targets need scores with single models left out. With the likelihoods listed in `pairwise`, `score`
    also takes `pairs` of models (`design.Pairs`) and returns scores [N, P] from one pass over the records: the score of
    each pair's target without the second model. Other attacks are run again without each model. If that takes too long,
    `repeatable` is false, and intervals assume the covariance that targets have without a leak.
    """

    reads: Reads
    score: Score
    likelihoods: tuple[str, ...]
    learns: bool = True
    several: bool = False
    repeatable: bool = True
    pairwise: tuple[str, ...] = ()
    vectors: bool = False


attacks: Registry[Attack] = Registry("attack", "mia_audit.attacks.methods")
"""Attacks by name. All files are imported, because that is cheap and one file may register several attacks."""


AUTHORS = "authors-lrt"
"""The name of the attack that computes the published score of Huang et al. 2024."""

METHOD = re.compile(r"(?P<attack>[^:]+\.py:\w+|[^:]+)(?::(?P<signals>.*))?")


def split(method: str) -> tuple[str, str | None]:
    """Split `attack:signals` into the attack's name and the signals to read, if the method names any."""
    match = METHOD.fullmatch(method)
    return (match["attack"], match["signals"]) if match else (method, None)


def asked(methods: Iterable[str], name: str) -> bool:
    """Return whether one of the methods is the attack of that name."""
    return any(split(method)[0] == name for method in methods)


def each(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read every signal separately, one per run."""
    return [(signal,) for signal in signals]


def attack(
    name: str = "",
    reads: Reads = each,
    likelihoods: Iterable[str] = (),
    pairwise: Iterable[str] = (),
    **traits: bool,
) -> Callable[[Score], Score]:
    """Register the decorated score function as an attack; `traits` are further fields of `Attack`."""

    def decorate(score: Score) -> Score:
        member = Attack(reads, score, tuple(likelihoods), pairwise=tuple(pairwise), **traits)
        attacks.register(name, score)(member)
        return score

    return decorate


SETS = {"as-published": ("threshold", "authors-lrt", "paper-lrt", "loss-lira-raw", "joint-lrt")}
"""Named sets of attacks."""


class Attacks(Section):
    """The membership scores that are computed."""

    set: Literal["as-published"] | None = None
    """A further set of attacks to run: `as-published` runs those of Huang et al.

    2024, as in their code and as in their text, and adds the table as_published. That table has our attacks too, and
    reads ROC curves both as the authors' code does and exactly.
    """

    methods: tuple[str, ...] = ("threshold", "loss-lira", "l1-lrt", "vector-lrt")
    """Attacks by name, or `file.py:function`; `attack:signal` or `attack:signal+signal` names the signals to read."""
    likelihoods: tuple[Literal["blend", "hierarchical", "types", "pooled", "per-record", "shrunk"], ...] = (
        "blend",
        "hierarchical",
    )
    """Likelihoods of the likelihood ratios; the first is the headline."""
    leave_out: tuple[NonNegativeInt, ...] = ()
    """Numbers of models that are neither attacked nor references for other models."""

    @field_validator("methods")
    @classmethod
    def _methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for method in value:
            known(attacks, split(method)[0])
        return value

    @model_validator(mode="after")
    def _with_set(self) -> Self:
        added = SETS[self.set] if self.set else ()
        object.__setattr__(self, "methods", tuple(dict.fromkeys((*self.methods, *added))))  # the section is frozen
        return self


@dataclass(frozen=True)
class AttackRun:
    """One attack on its signals with one likelihood, on the models' own membership or on a permuted one."""

    attack: str
    signals: tuple[Signal, ...]
    likelihood: str
    null_control: bool

    @property
    def signal(self) -> str:
        """The names of the signals, joined by +."""
        return "+".join(signal.name for signal in self.signals)


def plan(methods: Sequence[str], signals: Sequence[Signal], likelihoods: Sequence[str]) -> list[AttackRun]:
    """List the runs of the attacks on the available signals, grouped by signals so that each is read once.

    A method may name its signals, as in `joint-lrt:confidence+ixg_l1`. An attack with likelihoods runs once for each
    requested likelihood that it supports for its number of signals. If it supports none of them, it runs with its
    default. The first likelihood is the headline. A run that is requested twice is done once, because a second row per
    target would count as a second target.
    """
    runs = []
    for name, groups in (_resolve(method, signals) for method in methods):
        for group in groups:
            known = [one for one in attacks[name].likelihoods if len(group) <= AT_MOST.get(one, len(group))]
            chosen = [likelihood for likelihood in likelihoods if likelihood in known] or known[:1] or ["none"]
            for null_control in (False, True) if attacks[name].learns else (False,):
                runs += [AttackRun(name, group, likelihood, null_control) for likelihood in chosen]
    order = {signal: index for index, signal in enumerate(signals)}
    return sorted(dict.fromkeys(runs), key=lambda run: [order[signal] for signal in run.signals])


def unread(methods: Sequence[str], signals: Sequence[Signal]) -> list[str]:
    """List the attacks that read none of the signals."""
    return [method for method in dict.fromkeys(methods) if not _resolve(method, signals)[1]]


def _resolve(method: str, signals: Sequence[Signal]) -> tuple[str, list[tuple[Signal, ...]]]:
    """Split `attack:signal+signal` into the attack and the signals to read; if no signals are named, the attack decides."""
    name, wanted = split(method)
    signals = [signal for signal in signals if attacks[name].vectors or not signal.is_vector]
    if wanted is None:
        return name, attacks[name].reads(signals)
    by_name = {signal.name: signal for signal in signals}
    for signal in (words := wanted.split("+")):
        if signal not in by_name:
            raise UserError(f"attack '{method}': no signal '{signal}': {suggest(signal, by_name)}")
        if words.count(signal) > 1:
            raise UserError(f"attack '{method}': '{signal}' is given twice")
    if len(words) > 1 and not attacks[name].several:
        able = " and ".join(other for other in attacks.names() if attacks[other].several)
        raise UserError(f"attack '{method}': {name} reads one signal at a time; {able} read several")
    return name, [tuple(by_name[signal] for signal in words)]


class Scores(NamedTuple):
    """The scores of one run, with the data from which they were computed; matrices are [N records, K targets]."""

    run: AttackRun
    readings: list[Reading]
    member: Member
    scores: Cells


def scores_of(
    runs: Iterable[AttackRun],
    read: Callable[[Signal], Sequence[Cells]],
    member: Member,
    null: Member,
) -> Iterator[Scores]:
    """Yield the scores of every run, with the readings and the membership from which they were computed.

    Raises UserError for a run that cannot score a single member, or a single non-member, of some target. `read` gives
    the values of a signal, [N, K] for every query; they are kept if the next run needs them too.
    """
    held = Held(read)
    for run, after in pairwise([*runs, None]):
        assert run is not None
        yield _scored(run, held.of(run.signals, after.signals if after else ()), null if run.null_control else member)


class Held:
    """The readings of signals. A reading is kept while the next run reads it too."""

    def __init__(self, read: Callable[[Signal], Sequence[Cells]]) -> None:
        """Take the function that reads a signal's values, [N, K] for every query."""
        self._read = read
        self._held: dict[Signal, Reading] = {}

    def of(self, signals: Sequence[Signal], after: Sequence[Signal]) -> list[Reading]:
        """Return the readings of signals. Those that are also read `after` are kept; the others are freed before new ones are read."""
        self._held = {signal: self._held[signal] for signal in signals if signal in self._held}
        readings = [self._held.get(signal) or Reading(signal, self._read(signal)) for signal in signals]
        self._held = {reading.signal: reading for reading in readings if reading.signal in after}
        return readings


def _scored(run: AttackRun, readings: list[Reading], member: Member) -> Scores:
    scores = attacks[run.attack].score(readings, member, run.likelihood)
    _check_scored(run, scores, member)
    return Scores(run, readings, member, scores)


def _check_scored(run: AttackRun, scores: Cells, member: Member) -> None:
    if not any(np.isnan(column).any() for column in scores.T):
        return
    scored = ~np.isnan(scores)
    members, others = (scored & member).any(axis=0), (scored & ~member).any(axis=0)
    for target in np.flatnonzero(~(members & others)):
        lacking = "non-member" if members[target] else "member" if others[target] else "record"
        asked, remedy = (f" for the likelihood '{run.likelihood}'", " or choose another likelihood")
        if run.likelihood == "none":
            asked, remedy = "", ""
        raise UserError(
            f"{run.attack} on {run.signal}: no {lacking} of target {target} has enough other models on each side{asked} "
            f"({member.shape[1]} models); give more models{remedy}"
        )


def permuted_membership(member: Member, seed: int, dataset: str, persons: Persons | None = None) -> Member:
    """Return a membership of the same design that is independent of all signals, for the null control.

    Records are permuted independently for each model, or in the same way for all models if their memberships depend on each
    other. With `persons`, persons are permuted, and their records with them.
    """
    if persons is not None:
        of_persons = persons.gathered(member, "membership")
        return np.asarray(persons.spread(permuted_membership(of_persons, seed, dataset)))
    if not recognise(member).independent:
        return member[generator(seed, "null control", dataset).permutation(len(member))]
    columns = [
        generator(seed, "null control", dataset, model).permutation(member[:, model])
        for model in range(member.shape[1])
    ]
    return np.stack(columns).T
