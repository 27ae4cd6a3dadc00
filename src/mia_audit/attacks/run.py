"""Which attacks run on which signals, and the scores of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.signal import Reading, Signal
from mia_audit.errors import UserError, suggest
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Member = Bool[np.ndarray, "N K"]
    Cells = Float[np.ndarray, "N K"]


@dataclass(frozen=True)
class Run:
    """One attack on its signals with one variance, on the models' own membership or on a permuted one."""

    attack: str
    signals: tuple[Signal, ...]
    variance: str
    null_control: bool

    @property
    def signal(self) -> str:
        """The names of the signals, joined by +."""
        return "+".join(signal.name for signal in self.signals)


def plan(methods: Sequence[str], signals: Sequence[Signal], variances: Sequence[str]) -> list[Run]:
    """List the runs of the attacks on the signals there are, grouped by signals so that each is read once.

    A method may name its signals, as in `joint-lrt:confidence+ixg_l1`. Attacks with variances run once for each that
    they know (with their default where they know none of them); the first is the headline, and the one of the null control.
    What is asked for twice runs once: a second row per target would count as a second target.
    """
    runs = []
    for method, groups in (_resolve(method, signals) for method in methods):
        known = attacks[method].variances
        chosen = [name for name in variances if name in known] or known[:1] or ["none"]
        for group in groups:
            runs += [Run(method, group, variance, null_control=False) for variance in chosen]
            if attacks[method].learns:
                runs.append(Run(method, group, chosen[0], null_control=True))
    order = {signal: index for index, signal in enumerate(signals)}
    return sorted(dict.fromkeys(runs), key=lambda run: [order[signal] for signal in run.signals])


def _resolve(method: str, signals: Sequence[Signal]) -> tuple[str, list[tuple[Signal, ...]]]:
    """Split `attack:signal+signal` into the attack and the signals it is to read; without signals the attack decides."""
    name, explicit, wanted = method.partition(":")
    if not explicit:
        return name, attacks[name].reads(signals)
    by_name = {signal.name: signal for signal in signals}
    for signal in (words := wanted.split("+")):
        if signal not in by_name:
            raise UserError(f"attack '{method}': no signal '{signal}': {suggest(signal, by_name)}")
        if words.count(signal) > 1:
            raise UserError(f"attack '{method}': '{signal}' stands there twice")
    if len(words) > 1 and not attacks[name].several:
        able = " and ".join(other for other in attacks.names() if attacks[other].several)
        raise UserError(f"attack '{method}': {name} reads one signal at a time; {able} read several")
    return name, [tuple(by_name[signal] for signal in words)]


def scores_of(
    runs: Iterable[Run], read: Callable[[Signal], Sequence[Cells]], member: Member, null: Member
) -> Iterator[tuple[Run, Member, Cells]]:
    """Yield every run with the membership it was judged by and its scores, both [N records, K targets].

    A run that cannot score a single member, or non-member, of some target is a UserError.
    `read` gives the values of a signal, [N, K] for every query; the last ones read are kept until other signals are asked for.
    """
    held: dict[Signal, Reading] = {}
    for run in runs:
        held = {signal: held[signal] if signal in held else Reading(signal, read(signal)) for signal in run.signals}
        judged = null if run.null_control else member
        scores = attacks[run.attack].score(list(held.values()), judged, run.variance)
        _check_scored(run, scores, judged)
        yield run, judged, scores


def _check_scored(run: Run, scores: Cells, member: Member) -> None:
    scored = ~np.isnan(scores)
    if scored.all():
        return
    members, others = (scored & member).any(axis=0), (scored & ~member).any(axis=0)
    for target in np.flatnonzero(~(members & others)):
        lacking = "non-member" if members[target] else "member" if others[target] else "record"
        asked, mend = (f" for the variance '{run.variance}'", " or choose another variance")
        if run.variance == "none":
            asked, mend = "", ""
        raise UserError(
            f"{run.attack} on {run.signal}: no {lacking} of target {target} has enough other models on each side{asked} "
            f"({member.shape[1]} models); give more models{mend}"
        )


def permuted_membership(member: Member, seed: int, dataset: str) -> Member:
    """Permute the records of every model on its own: a membership that no signal knows, for the null control."""
    columns = [
        generator(seed, "null control", dataset, model).permutation(member[:, model])
        for model in range(member.shape[1])
    ]
    return np.stack(columns).T
