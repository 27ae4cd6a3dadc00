"""Persons as the unit of a private training: which of their records a step sees."""

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
    """The persons of a training set by the number of each of its records [n], from 0, and how many records of one count at most."""

    of: Int[Tensor, " n"]
    most: int

    def __len__(self) -> int:
        return len(self._counts)

    @cached_property
    def _counts(self) -> Int[Tensor, " P"]:
        return torch.bincount(self.of)

    def records(self, drawn: Bool[Tensor, " P"], stream: Stream) -> Int[Tensor, " b"]:
        """Return the records of the persons drawn, in their order; of those with more than `most` a uniform choice, drawn anew.

        Which are chosen of a person does not depend on who else is drawn.
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
