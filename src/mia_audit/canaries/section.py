"""The config section that puts canaries into one training run of each chosen setting."""

from typing import Annotated

from pydantic import Field

from mia_audit.canaries.catalogue import kinds
from mia_audit.sections import Section, known_all

Kinds = Annotated[tuple[str, ...], known_all(kinds)]

FEWEST = 20
"""Smallest number of canaries; fewer give no bound at any usual confidence."""


class Canaries(Section):
    """Canaries in one training run of each chosen setting, trained as for a release; bounds on ε come from that run."""

    settings: tuple[str, ...] = ()
    """Settings to train once on canaries, as DATASET/ARCHITECTURE/MECHANISM-epsE; none by default."""
    count: int = Field(1000, ge=FEWEST)
    """Number of canaries per data set."""
    kinds: Kinds = ("mislabelled",)
    """Kinds of canaries: `natural`, `mislabelled`, `rare`, `noise`."""
