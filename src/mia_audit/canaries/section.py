"""The config section that puts canaries into one training run of each chosen setting."""

from typing import Annotated

from pydantic import Field

from mia_audit.canaries.catalogue import kinds
from mia_audit.sections import Section, known_all

Kinds = Annotated[tuple[str, ...], known_all(kinds)]

FEWEST = 20
"""Fewer canaries prove nothing at any usual confidence."""


class Canaries(Section):
    """Canaries in one training each of some settings, as a release trains them; bounds on ε come from that one training."""

    settings: tuple[str, ...] = ()
    """Settings that are trained once on canaries, as DATASET/ARCHITECTURE/MECHANISM-epsE; none when left out."""
    count: int = Field(1000, ge=FEWEST)
    """Canaries of every data set."""
    kinds: Kinds = ("mislabelled",)
    """Kinds of canaries: `natural`, `mislabelled`, `rare`, `noise`."""
