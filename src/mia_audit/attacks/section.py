"""The section of a config for attacks."""

from typing import Literal, Self

from pydantic import field_validator, model_validator

from mia_audit.attacks.catalogue import attacks, split
from mia_audit.sections import OpenSection, Options, known

SETS = {"as-published": ("threshold", "authors-lrt", "paper-lrt", "loss-lira-raw", "joint-lrt")}
"""Named sets of attacks."""


class Attacks(OpenSection):
    """The membership scores that are computed. The attacks declare further keys."""

    set: Literal["as-published"] | None = None
    """A further set of attacks to run: `as-published` runs those of Huang et al.

    2024, as in their code and as in their text, and adds the table as_published. That table has our attacks too, and
    reads ROC curves both as the authors' code does and exactly.
    """

    methods: tuple[str, ...] = ("threshold", "loss-lira", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt")
    """Attacks by name, or `file.py:function`; `attack:signal` or `attack:signal+signal` names the signals to read."""
    likelihoods: tuple[Literal["blend", "hierarchical", "types", "pooled", "per-record", "shrunk"], ...] = (
        "blend",
        "hierarchical",
    )
    """Likelihoods of the likelihood ratios; the first is the headline."""

    @classmethod
    def members(cls) -> dict[str, Options]:
        """Return the options of every registered attack."""
        return {name: attacks[name].options for name in attacks.names()}

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

    @model_validator(mode="after")
    def _options(self) -> Self:
        chosen = tuple(model for method in self.methods for model in attacks[split(method)[0]].options)
        self._resolve("no attack in attacks.methods reads", chosen)
        return self
