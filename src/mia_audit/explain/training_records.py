"""A shadow model's training records as the explanation set, for explanations that are fitted to records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mia_audit.explain.private_local import ExplanationSet, Terms
from mia_audit.explain.private_local.solver import Problem
from mia_audit.runtime.memory import AdaptiveBatchSize

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
    from torch import nn

    from mia_audit.models import Inputs

ROWS = 256
"""Number of records for which the model's values are computed at once."""


@dataclass
class Members:
    """A model's training records as inputs, with the model's own values for these records: 2p − 1 of every class.

    `inputs` are those of the pool. `member` marks the records on which shadow model number `shadow` was trained.
    """

    model: nn.Module
    inputs: Inputs | Tensor
    member: Bool[np.ndarray, " N"]
    shadow: int
    _explained: ExplanationSet | None = None
    _last: tuple[Sequence[int], list[Problem]] = field(default=((), []))
    persons: Shaped[np.ndarray, " N"] | None = None
    """The ids of the records' persons, where the unit is the person."""

    @property
    def explained(self) -> ExplanationSet:
        """The explanation set, whose values are computed only once."""
        if self._explained is None:
            rows = torch.as_tensor(np.flatnonzero(self.member), device=self.inputs.device)
            records, values = zip(*AdaptiveBatchSize(ROWS)(lambda size: list(self._labelled(rows, size))), strict=True)
            persons = None if self.persons is None else self.persons[self.member]
            self._explained = ExplanationSet.of(np.concatenate(records), np.concatenate(values), persons=persons)
        return self._explained

    @torch.no_grad()
    def _labelled(self, rows: Int[Tensor, " n"], size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for part in torch.split(rows, size):
            inputs = self.inputs[part]
            values = 2 * self.model(inputs).double().softmax(dim=1).cpu().numpy() - 1
            yield inputs.flatten(1).cpu().numpy(), values

    def problems(
        self,
        inputs: Float[Tensor, "B ..."],
        records: Sequence[int],
        values: Float[np.ndarray, " B"],
        classes: Int[np.ndarray, " B"],
        terms: Terms,
    ) -> list[Problem]:
        """Return the problem of explaining each record; those of the last batch are cached for the next explainer of the family."""
        if self._last[0] != records:
            points = self.explained.points(inputs.flatten(1).cpu().numpy())
            self._last = (records, list(self.explained.problems(points, values, classes, terms)))
        return self._last[1]
