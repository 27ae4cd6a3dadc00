"""The section of a config for a finished model that is attacked with shadow models of its own recipe as references."""

from typing import Self

from pydantic import model_validator

from mia_audit.pools.named_members import COLUMN
from mia_audit.sections import Epsilon, Section


class Target(Section):
    """A finished model, which is attacked with shadow models of its own recipe as references."""

    architecture: str
    """The architecture, among `architectures`, that the model is one of."""
    model: str
    """The model's file or folder: weights as .safetensors or .pth, .skops, or what the script's `load` or the command opens."""
    members: str
    """The records that it was trained on: a file with a row number (from 0) or an id a line, a .npy file of row numbers or truth
    values, or `column:NAME` of a table."""
    id: str = ""
    """Tables in a file: the column that the ids of `members` are values of; row numbers when left out."""
    dataset: str = ""
    """The data set; the only one when left out."""
    mechanism: str = ""
    """The mechanism that it was trained under; the only one when left out."""
    epsilon: Epsilon | None = None
    """The ε that it was trained with; the only one of the mechanism when left out."""

    @model_validator(mode="after")
    def _ids(self) -> Self:
        if self.id and self.members.startswith(COLUMN):
            raise ValueError("id: names the column of ids in a file, but members is a column itself; leave id out")
        return self
