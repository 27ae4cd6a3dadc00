"""The section of a config for an architecture: a model, its initial weights, and the mechanisms under which it is trained.

The section of a config for a finished model that is attacked with shadow models of its own recipe as references.

Sweeps: keys of a config section with several values each, and one section per combination of these values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, ValidationError, field_validator, model_validator

from mia_audit.errors import UserError, suggest
from mia_audit.learners.naming import BUILT_IN, Outputs, check_script, described_as, learner_of, script_and_function
from mia_audit.pools.named_members import MEMBERS_COLUMN
from mia_audit.sections import Epsilon, Epsilons, FilePath, Section, folder_name
from mia_audit.training.section import Training, TrainingOverrides


class Target(Section):
    """A finished model, which is attacked with shadow models of its own recipe as references."""

    architecture: str
    """The model's architecture, one of `architectures`."""
    model: str
    """The model's file or folder: weights as .safetensors or .pth, an estimator as .skops, or what the script's `load` reads."""
    members: str
    """The records on which it was trained: a file with one row number (from 0) or id per line, a .npy file of row
    numbers or truth values, or `column:NAME` of a table.
    """
    id: str = ""
    """For tables: the column that holds the ids in `members`. If left out, `members` holds row numbers."""
    dataset: str = ""
    """The data set; the only one when left out."""
    mechanism: str = ""
    """The mechanism under which it was trained; the only one when left out."""
    epsilon: Epsilon | None = None
    """The ε with which it was trained; the mechanism's only one when left out."""

    @model_validator(mode="after")
    def _ids(self) -> Self:
        if self.id and self.members.startswith(MEMBERS_COLUMN):
            raise ValueError("id: names the column of ids if members is a file, but members is a column; leave id out")
        return self


Parameter = bool | int | float | str
Sweep = dict[str, Annotated[tuple[Parameter, ...], Field(min_length=1)]]
TRAINING = "training."
"""Prefix of swept keys that belong to the training section."""
MOST_SWEPT = 1000
"""Largest number of combinations of a sweep."""


@dataclass(frozen=True)
class Swept:
    """A section that a sweep generated: the name of the original section, and the values of the swept keys, without `training.`."""

    section: str
    values: Mapping[str, Parameter]
    training: tuple[str, ...] = ()
    """The swept keys of training."""


def combinations(name: str, sweep: Sweep) -> Iterator[tuple[str, Swept]]:
    """Return every combination of a sweep and its name, `{name}-{key}{value}`; ValueError for too many combinations, or for a repeated one."""
    if (count := prod(map(len, sweep.values()))) > MOST_SWEPT:
        raise ValueError(f"{name}.sweep: {count:,} combinations; expected at most {MOST_SWEPT:,}: leave values out")
    training = tuple(key.removeprefix(TRAINING) for key in sweep if key.startswith(TRAINING))
    names = set()
    for values in product(*sweep.values()):
        chosen = {key.removeprefix(TRAINING): value for key, value in zip(sweep, values, strict=True)}
        words = [f"{key}{str(value).lower() if isinstance(value, bool) else value}" for key, value in chosen.items()]
        if (label := folder_name("-".join([name, *words]))) in names:
            raise ValueError(f"{name}.sweep: two combinations are named '{label}'; give every value once")
        names.add(label)
        yield label, Swept(name, chosen, training)


class Under(Section):
    """An architecture under one of the audit's mechanisms."""

    epsilon: Epsilons = ()
    """The mechanism's privacy budgets to use; all of them when left out."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this architecture under this mechanism."""


class Architecture(Section):
    """A model and its initial weights."""

    model: str = ""
    """`mlp`, any timm model, `package.module:Class` with scikit-learn's interface, or your own `file.py` or
    `file.py:function`; the architecture's name when left out.
    """
    parameters: dict[str, Parameter] = Field({})
    """Arguments of the model's constructor."""
    outputs: Outputs | None = None
    """The kind of output of a script's `predict`; for an estimator, the method that is called (`probabilities`)."""
    votes: int = Field(0, ge=0)
    """Number of votes (such as trees) whose average is a probability; decides how probabilities of 0 and 1 are clipped.

    0: probabilities are not votes, or the number is known.
    """
    sweep: Sweep = Field({})
    """Parameters, and keys of training such as `training.epochs`, with several values each.

    Every combination becomes a separate architecture, named `{name}-{key}{value}`.
    """
    pretrained: FilePath = "none"
    """Initial weights of shadow models: `none`, `public` (trained once on the pool's public records), `hub` (timm's
    published weights for the model) or a .safetensors or .pth file of weights.
    """
    pretraining: Training = Training()
    """How the public model is trained."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this architecture."""
    mechanisms: dict[str, Under] = Field({})
    """Mechanisms under which this architecture is trained; all when left out."""
    _swept: Swept | None = PrivateAttr(None)

    @property
    def learner(self) -> str:
        """The learner that trains the model: `torch-module`, `estimator` or `script`; UserError if the model's file cannot be read."""
        return learner_of(self.model)

    @property
    def swept(self) -> Swept | None:
        """The sweep from which the architecture results, if any."""
        return self._swept

    @field_validator("pretrained")
    @classmethod
    def _pretrained(cls, value: str) -> str:
        if value not in ("none", "public", "hub") and not value.endswith((".safetensors", ".pth", ".pt", ".bin")):
            raise ValueError(f"expected none, public, hub, or a file that ends in .safetensors or .pth, got '{value}'")
        return value

    @model_validator(mode="after")
    def _foreign(self) -> Self:
        try:
            learner = self.learner
            if learner == "script":
                check_script(*script_and_function(self.model), self.outputs or "")
        except UserError as error:
            raise ValueError(str(error)) from None
        if learner == BUILT_IN and (self.outputs or self.votes):
            key = "outputs" if self.outputs else "votes"
            raise ValueError(f"{key}: only for models of your own, but '{self.model}' is built in; leave the key out")
        if learner != BUILT_IN and self.pretrained != "none":
            raise ValueError(
                f"pretrained: only built-in models have initial weights, but this model is trained by {described_as(learner)}"
            )
        return self

    @model_validator(mode="after")
    def _floor(self) -> Self:
        if self.pretraining.floor is not None:
            raise ValueError("pretraining.floor: only shadow models have a floor: move it to training")
        return self

    @model_validator(mode="after")
    def _sweep(self) -> Self:
        if twice := sorted(set(self.sweep) & set(self.parameters)):
            raise ValueError(f"sweep.{twice[0]}: also given in parameters; give it in one of the two")
        keys = {key.removeprefix(TRAINING) for key in self.sweep if key.startswith(TRAINING)}
        sections = {"training": self.training} | {
            f"mechanisms.{name}.training": under.training for name, under in self.mechanisms.items()
        }
        known = [key for key in TrainingOverrides.model_fields if key != "floor"]
        for key in sorted(keys):
            if key not in known:
                raise ValueError(
                    f"sweep.{TRAINING}{key}: not a key of training that a sweep can change: {suggest(key, known)}"
                )
            if key in self.sweep or key in self.parameters:
                raise ValueError(
                    f"sweep.{TRAINING}{key}: the model also has a parameter '{key}', which would make names of architectures ambiguous"
                )
            for where, section in sections.items():
                if getattr(section, key) is not None:
                    raise ValueError(f"sweep.{TRAINING}{key}: also given in {where}; give it in one of the two")
        return self

    def expanded(self, name: str) -> "dict[str, Architecture]":
        """Return one architecture per combination of the swept parameters, by name. Without a sweep, return only this architecture."""
        if not self.sweep:
            return {name: self}
        architectures = {}
        for label, swept in combinations(name, self.sweep):
            own = {key: value for key, value in swept.values.items() if key not in swept.training}
            training = self._trained_with({key: swept.values[key] for key in swept.training}, name)
            one = self.model_copy(
                update={
                    "model": self.model or name,
                    "parameters": self.parameters | own,
                    "training": training,
                    "sweep": {},
                }
            )
            one._swept = swept
            architectures[label] = one
        return architectures

    def _trained_with(self, swept: Mapping[str, Parameter], name: str) -> TrainingOverrides:
        """Return the section's overrides together with the swept ones. Raises ValueError for an invalid value of a training key."""
        if not swept:
            return self.training
        try:
            return TrainingOverrides.model_validate(self.training.model_dump(exclude_none=True) | dict(swept))
        except ValidationError as error:
            wrong = error.errors()[0]
            raise ValueError(f"{name}.sweep.{TRAINING}{wrong['loc'][0]}: {wrong['msg'].lower()}") from None
