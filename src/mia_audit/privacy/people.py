"""Persons as the unit of private training, and the choice of their records in a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

    from mia_audit.privacy.noise import Stream


@dataclass(frozen=True, eq=False)
class People:
    """The person of every record of a training set [n], numbered from 0, and the largest number of a person's records in a step."""

    of: Int[Tensor, " n"]
    most: int

    def __len__(self) -> int:
        return len(self._counts)

    @cached_property
    def _counts(self) -> Int[Tensor, " P"]:
        return torch.bincount(self.of)

    def records(self, drawn: Bool[Tensor, " P"], stream: Stream) -> Int[Tensor, " b"]:
        """Return the records of the drawn persons, in order. If a person has more than `most` records, draw `most` of them uniformly.

        The choice for a person does not depend on the other persons drawn.
        """
        rows = drawn[self.of].nonzero().squeeze(1)
        if int(self._counts.max()) <= self.most:
            return rows
        keys = stream.uniform(len(self.of))[rows]
        order = torch.argsort(keys)
        order = order[torch.argsort(self.of[rows[order]], stable=True)]
        owners = self.of[rows[order]]
        starts = torch.searchsorted(owners, owners)
        kept = order[torch.arange(len(order)) - starts < self.most]
        chosen: Tensor = rows[kept.sort().values]
        return chosen
