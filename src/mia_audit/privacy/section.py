"""The section of a config for what may be given away of a data set, and where that is accounted for."""

from typing import Literal, Self

from pydantic import field_validator, model_validator

from mia_audit.sections import Epsilon, Probability, Section

DATASET = "{dataset}"
"""Stands in the path of a ledger for the data set's name."""


class Privacy(Section):
    """What may be made of a data set's records and given away, and the ledger that counts it (docs/release.md)."""

    ledger: str = ""
    """The file that everything released of a data set is charged in, begun by the first charge; `{dataset}` in it stands for the
    data set's name, which a config of several data sets needs. Nothing is accounted for where it is left out."""
    epsilon: Epsilon = "inf"
    """The budget of all releases together; `inf` counts and refuses nothing. Fixed when the ledger is begun, as are the next three."""
    delta: Probability = 1e-5
    """δ of that budget."""
    planned: tuple[str, ...] = ()
    """Settings that are to be released, `DATASET/ARCHITECTURE/MECHANISM-epsE`, all of them and nothing else: they are composed by
    their privacy loss distributions. Without it a filter decides what is still allowed, which costs more and takes anything."""
    filter: Literal["rdp", "gdp"] = "rdp"
    """The filter: of Rényi DP, or of Gaussian DP, which takes Gaussian mechanisms without sampling alone and is exact for them."""
    part: str = ""
    """`PARTITION/PART` where this audit's records are one of several disjoint parts of the data set whose ledger it is: parts of
    one partition count once, by the worst of them."""

    @field_validator("ledger")
    @classmethod
    def _path(cls, value: str) -> str:
        if set(value.replace(DATASET, "")) & set("{}\0\n\r"):
            raise ValueError(f"'{value}': the path of a file, in which only {DATASET} is filled in")
        return value

    @field_validator("part")
    @classmethod
    def _part(cls, value: str) -> str:
        from mia_audit.privacy.dataset_ledger import PART

        if value and not PART.fullmatch(value):
            raise ValueError(f"'{value}': expected PARTITION/PART, such as hospitals/north")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        given = self.model_dump(exclude_defaults=True, exclude={"ledger"})
        if given and not self.ledger:
            raise ValueError(f"{min(given)}: belongs to a ledger, but none is named (ledger: FILE)")
        if self.planned and "filter" in given:
            raise ValueError("filter: what is planned needs none; leave one of the two out")
        return self

    def ledger_of(self, dataset: str) -> str:
        """Return the path of a data set's ledger; empty where there is none."""
        return self.ledger.replace(DATASET, dataset)
