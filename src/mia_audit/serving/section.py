"""The config file of a service: records, black box, terms, callers and ledger."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from mia_audit.config.load import parse
from mia_audit.config.plain import read_plain
from mia_audit.errors import UserError, suggest
from mia_audit.explain.private_local.service import PROTOCOLS
from mia_audit.explain.private_local.terms import Terms
from mia_audit.explain.weights import KernelName
from mia_audit.registry import IN_FILE
from mia_audit.sections import FilePath, Name, Probability, Section


def _protocol(name: str) -> str:
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol '{name}': {suggest(name, PROTOCOLS)}")
    return name


Budget = Annotated[float, Field(gt=0, lt=math.inf)]


class Served(Section):
    """The config of `mia-audit serve-explanations`."""

    pool: FilePath
    """Folder of the pool whose records are the explanation set."""
    black_box: str = ""
    """`file.py:function` from records [q, …] to values in [−1, 1] [q, C]."""
    model: FilePath = ""
    """Folder of a finished model, such as a release, instead of `black_box`."""
    architecture: FilePath = ""
    """The architecture.json of that model."""
    quantity: Literal["probability", "margin"] = "probability"
    """The quantity of the model's output that is explained."""
    ledger: FilePath
    """The ledger of the service: created if missing, otherwise continued."""
    data_ledger: FilePath = ""
    """The ledger of the data set, which is charged once with the whole budget; needed if the black box was trained on these records."""
    keys: FilePath
    """File with the SHA-256 of the callers' keys, which `--new-key` creates."""
    callers: dict[Name, Budget] = Field(min_length=1)
    """The callers, and the ε at δ that each may spend."""
    budget: Budget
    """ε of all answers together, over the life of the service."""
    epsilon: Budget
    """ε of an explanation computed from scratch."""
    delta: Probability
    """δ of every ε."""
    protocol: Annotated[str, AfterValidator(_protocol)] = "adaptive"
    """The protocol, which decides how past explanations are used."""
    steps: PositiveInt = 100
    """Noisy steps T of an explanation computed from scratch."""
    c: Budget = Field(1.0, le=1e6)
    """Weight constant: no record moves the gradient by more than c/m."""
    kernel: KernelName = "stable"
    """Registered kernel of the weights."""
    adjacency: Literal["zero-out", "replacement"] = "zero-out"
    """What is protected: whether a record's term is in the loss (the number of records is public), or a record's content."""
    scale: Budget | None = None
    """Unit of distance, set without looking at the records; √n for n features (255√n for pixels) when left out."""

    @model_validator(mode="after")
    def _one_black_box(self) -> Self:
        if bool(self.black_box) == bool(self.model):
            raise ValueError("expected one of black_box (file.py:function) and model (a folder, with architecture)")
        if bool(self.model) != bool(self.architecture):
            raise ValueError("model and architecture belong together: give architecture, the model's architecture.json")
        if self.black_box and not IN_FILE.fullmatch(self.black_box):
            raise ValueError(f"black_box: expected file.py:function, got '{self.black_box}'")
        return self

    @property
    def terms(self) -> Terms:
        """The terms of the explainer."""
        return Terms(self.epsilon, self.delta, self.budget, self.steps, self.c, self.kernel, self.adjacency)


def read_served(path: Path) -> Served:
    """Read the file of a service; UserError for a mistake, with the file, the key and a way to fix it."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; a service is one YAML file, see docs/private_explanations.md")
    return parse(Served, read_plain(path), str(path))
