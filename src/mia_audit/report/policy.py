"""A policy: limits on the settings of an audit."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from mia_audit.sections import Probability, Section

Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
"""A number between 0 and 1; a text is not read as a number."""
Flag = Annotated[bool, Field(strict=True)]
Rates = dict[Probability, Share]
"""The largest allowed TPR at each FPR, both as fractions."""


class Limits(Section):
    """The largest values that any attack may reach."""

    auc: float | None = Field(None, ge=0.5, le=1, strict=True)
    """Largest AUC of any attack."""
    tpr_at_fpr: Rates = Field({})
    """Largest TPR of any attack, by FPR: `{0.001: 0.02, 0.01: 0.05}`; both are fractions."""

    @field_validator("tpr_at_fpr")
    @classmethod
    def _above_chance(cls, value: Rates) -> Rates:
        for fpr, tpr in value.items():
            if tpr < fpr:
                raise ValueError(f"{fpr:g}: guessing has a TPR of {fpr:g} there; a limit of {tpr:g} is below it")
        return value

    @property
    def given(self) -> bool:
        """Whether anything is limited."""
        return self.auc is not None or bool(self.tpr_at_fpr)


class GroupLimits(Limits):
    """The largest values that an attack may reach in any group of records."""

    columns: tuple[str, ...] = ("label",)
    """Columns of records.parquet that make the groups."""


class MostExposed(Section):
    """A limit on how often any single record is recognised."""

    fpr: Share = 0.01
    """A model recognises a record if at most this share of the records that it was not trained on score as high; one of evaluation.fprs."""
    at_most: Share
    """Largest advantage: the estimated share of models trained on a record that recognise it, minus the share among the others."""


class Policy(Limits):
    """The limits on settings of an audit."""

    settings: tuple[str, ...] = ()
    """Settings by the folders of their results, DATASET/ARCHITECTURE/MECHANISM-epsE; all when left out."""
    confidence: Share = 0.95
    """Level of all intervals that limits are compared with."""
    groups: GroupLimits | None = None
    """Limits in every group of at least 30 records."""
    persons: Limits | None = None
    """Limits on attacks that recognise persons by all of their records."""
    most_exposed: MostExposed | None = None
    """Limit on the most exposed record."""
    epsilon_below_claim: Flag = False
    """`true`: the lower bounds on ε do not exceed the claimed ε."""
    null_control: Flag = False
    """`true`: the null control holds."""
    models: int | None = Field(None, gt=0, strict=True)
    """Fewest models that were attacked."""
    attacks: tuple[str, ...] = ()
    """Attacks that must have been run."""
    signals: tuple[str, ...] = ()
    """Signals that attacks must have read, alone or together with others."""
    intervals: Flag = False
    """`true`: the strongest attack's AUC has a confidence interval over models."""
    unit: Literal["record", "person"] | None = None
    """The unit for which membership must have been drawn."""
    canaries: int | None = Field(None, gt=0, strict=True)
    """Fewest canaries in one training run."""
    accuracy: float | None = Field(None, gt=0, le=1, strict=True)
    """Least test accuracy."""
    digests: Flag = False
    """`true`: every file agrees with SHA256SUMS, provenance.json and its own digest."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        for name in ("groups", "persons"):
            section = getattr(self, name)
            if section is not None and not section.given:
                raise ValueError(f"{name}: no limit; give auc or tpr_at_fpr")
        parts = (self.groups, self.persons, self.most_exposed, self.models, self.accuracy, self.unit, self.canaries)
        flags = self.epsilon_below_claim or self.null_control or self.digests or self.intervals
        flags = flags or bool(self.attacks or self.signals)
        if not (self.given or flags or any(part is not None for part in parts)):
            raise ValueError("no criterion; give at least one, for example auc: 0.6")
        return self
