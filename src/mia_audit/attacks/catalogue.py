"""The registry of attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mia_audit.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.signal import Reading, Signal

    Reads = Callable[[Sequence[Signal]], list[tuple[Signal, ...]]]
    Score = Callable[[Sequence[Reading], Bool[np.ndarray, "N K"], str], Float[np.ndarray, "N K"]]


@dataclass(frozen=True)
class Attack:
    """A way from signals to membership scores.

    `reads` says which of the signals there are it reads, a tuple for each time it runs. `score` turns the readings of
    one tuple, the membership and the name of a variance into scores, [N records, K targets], higher meaning member and
    NaN meaning no score. `variances` are those it knows, its default first; attacks without any are given `none`. An
    attack that `learns` depends on the membership of the other models, and so has a null control. `several`: it can read
    more than one signal at once.
    """

    reads: Reads
    score: Score
    variances: tuple[str, ...]
    learns: bool
    several: bool


attacks: Registry[Attack] = Registry("attack", "mia_audit.attacks.methods", "-", eager=True)
"""Attacks by name; cheap to import, so a file may register a family of them."""


def attack(
    name: str, reads: Reads, variances: Iterable[str] = (), learns: bool = True, several: bool = False
) -> Callable[[Score], Score]:
    """Register the decorated score function as an attack."""

    def decorate(score: Score) -> Score:
        attacks.register(name)(Attack(reads, score, tuple(variances), learns, several))
        return score

    return decorate
