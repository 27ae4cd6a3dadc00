"""The section of a config for releases from a data set, and their accounting."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import field_validator, model_validator

from mia_audit.sections import Epsilon, Probability, Section

DATASET = "{dataset}"
"""Placeholder for the data set's name in the path of a ledger."""


class Privacy(Section):
    """The permitted releases from a data set's records, and the ledger that accounts for them (docs/how-to/release.md)."""

    ledger: str = ""
    """The file in which every release from a data set is charged; the first charge creates it.

    `{dataset}` in the path is replaced by the data set's name; a config with several data sets must use it.

    A relative path starts in the working folder. The audit's results remember the ledger, and no later release is charged to another one.

    Without a ledger nothing is accounted for.
    """
    epsilon: Epsilon = "inf"
    """The budget of all releases together; with `inf` releases are counted and none is refused.

    It is fixed when the ledger is created, like the next three keys.
    """
    delta: Probability = 1e-5
    """δ of that budget."""
    planned: tuple[str, ...] = ()
    """The complete list of settings to release, `DATASET/ARCHITECTURE/MECHANISM-epsE`: they are composed by their privacy loss distributions.

    Without a list, a filter decides which releases the budget still allows; this costs more, but permits any setting.
    """
    filter: Literal["rdp", "gdp"] = "rdp"
    """The filter: `rdp` for Rényi DP, or `gdp` for Gaussian DP.

    The latter supports only Gaussian mechanisms without sampling, and is exact for these.
    """

    acknowledge: tuple[Literal["public-records-are-public"], ...] = ()
    """`public-records-are-public`: the public records that were drawn from an audited file are known to everybody, so
    that a release may publish what is computed from them.
    """

    @field_validator("ledger")
    @classmethod
    def _path(cls, value: str) -> str:
        if set(value.replace(DATASET, "")) & set("{}\0\n\r"):
            raise ValueError(f"'{value}': expected the path of a file; {DATASET} is the only placeholder")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        given = self.model_dump(exclude_defaults=True, exclude={"ledger", "acknowledge"})
        if given and not self.ledger:
            raise ValueError(f"{min(given)}: requires a ledger, but none is named (ledger: FILE)")
        if self.planned and "filter" in given:
            raise ValueError("filter: not used when planned lists all releases; leave one of the two keys out")
        return self

    def ledger_of(self, dataset: str) -> str:
        """Return the path of a data set's ledger; empty without one."""
        return self.ledger.replace(DATASET, dataset)
