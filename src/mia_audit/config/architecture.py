"""The section of a config for an architecture: a model, its initial weights, and the mechanisms that it is trained under."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from mia_audit.sections import Epsilon, Section, folder_name
from mia_audit.training.section import Training, TrainingOverrides

Parameter = bool | int | float | str


class Under(Section):
    """An architecture under one of the audit's mechanisms."""

    epsilon: tuple[Epsilon, ...] = ()
    """Some of the mechanism's privacy budgets; all of them when left out."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this architecture under this mechanism."""


@dataclass(frozen=True)
class Swept:
    """What an architecture has from a sweep: the section's name, and the values of the swept parameters."""

    section: str
    values: Mapping[str, Parameter]


class Architecture(Section):
    """A model and what it starts from."""

    model: str = ""
    """`mlp`, or any timm model by name, or `file.py:function`; the architecture's own name when left out."""
    parameters: dict[str, Parameter] = Field({})
    """Arguments of the model's constructor."""
    sweep: dict[str, Annotated[tuple[Parameter, ...], Field(min_length=1)]] = Field({})
    """Parameters that take several values: each combination becomes an architecture of its own, named `{name}-{key}{value}`."""
    pretrained: str = "none"
    """What shadows are fine-tuned from: `none`, `public` (trained once on the pool's public records), `hub` (the weights that timm
    publishes for the model) or a .safetensors or .pth file of weights."""
    pretraining: Training = Training()
    """How the public model is trained."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this architecture."""
    mechanisms: dict[str, Under] = Field({})
    """Mechanisms that this architecture is trained under; all when left out."""
    _swept: Swept | None = PrivateAttr(None)

    @property
    def swept(self) -> Swept | None:
        """The sweep that the architecture came from, if any."""
        return self._swept

    @field_validator("pretrained")
    @classmethod
    def _pretrained(cls, value: str) -> str:
        if value not in ("none", "public", "hub") and not value.endswith((".safetensors", ".pth", ".pt", ".bin")):
            raise ValueError(
                f"none, public, hub, or a file that ends in .safetensors or .pth was expected, got '{value}'"
            )
        return value

    @model_validator(mode="after")
    def _sweep(self) -> Self:
        if twice := sorted(set(self.sweep) & set(self.parameters)):
            raise ValueError(f"sweep.{twice[0]}: parameters has it too; give it in one of them")
        return self

    def expanded(self, name: str) -> "dict[str, Architecture]":
        """Return an architecture per combination of the swept parameters, by name; itself where nothing is swept."""
        if not self.sweep:
            return {name: self}
        architectures = {}
        for values in product(*self.sweep.values()):
            chosen = dict(zip(self.sweep, values, strict=True))
            words = [
                f"{key}{str(value).lower() if isinstance(value, bool) else value}" for key, value in chosen.items()
            ]
            one = self.model_copy(
                update={"model": self.model or name, "parameters": self.parameters | chosen, "sweep": {}}
            )
            one._swept = Swept(name, chosen)
            if (label := folder_name("-".join([name, *words]))) in architectures:
                raise ValueError(f"{name}.sweep: '{label}' results from it twice; give every value once")
            architectures[label] = one
        return architectures
