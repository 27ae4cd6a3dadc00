"""The section of a config for a finished model that is attacked with shadow models of its own recipe as references."""

from typing import Self

from pydantic import model_validator

from mia_audit.pools.named_members import COLUMN
from mia_audit.sections import Epsilon, Section


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
        if self.id and self.members.startswith(COLUMN):
            raise ValueError("id: names the column of ids if members is a file, but members is a column; leave id out")
        return self
