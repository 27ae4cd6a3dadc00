"""The registry of attacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mia_audit.registry import Registry
from mia_audit.sections import Options

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from mia_audit.signals.name import Signal

    Reads = Callable[[Sequence[Signal]], list[tuple[Signal, ...]]]
    Score = Callable[..., Float[np.ndarray, "N K"]]


@dataclass(frozen=True)
class Attack:
    """A method that turns signals into membership scores.

    `reads` selects signals from those of a setting, and returns one tuple for each run of the attack. `score(readings,
    member, likelihood)` turns the readings of one tuple, the membership [N records, K targets] and the name of a
    likelihood into scores [N, K]. A higher score means member, NaN means no score. The keys that the models of
    `options` declare are passed as keyword arguments. `likelihoods` lists those that the attack supports, the default
    first. An attack without likelihoods is called with `none`. `learns` says that the scores depend on the membership
    of the other models. Such an attack has a null control. `several` says that the attack can read more than one signal
    at once.

    Intervals over targets need scores with single models left out. With the likelihoods listed in `pairwise`, `score`
    also takes `pairs` of models (`design.Pairs`) and returns scores [N, P] from one pass over the records: the score of
    each pair's target without the second model. Other attacks are run again without each model. If that takes too long,
    `repeatable` is false, and intervals assume the covariance that targets have without a leak.
    """

    reads: Reads
    score: Score
    likelihoods: tuple[str, ...]
    learns: bool
    several: bool
    options: Options = ()
    repeatable: bool = True
    pairwise: tuple[str, ...] = ()


attacks: Registry[Attack] = Registry("attack", "mia_audit.attacks.methods", "-", eager=True)
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
    learns: bool = True,
    several: bool = False,
    options: Options = (),
    repeatable: bool = True,
    pairwise: Iterable[str] = (),
) -> Callable[[Score], Score]:
    """Register the decorated score function as an attack; see `Attack`."""

    def decorate(score: Score) -> Score:
        kinds = (tuple(likelihoods), learns, several, options, repeatable, tuple(pairwise))
        attacks.register(name, score)(Attack(reads, score, *kinds))
        return score

    return decorate
