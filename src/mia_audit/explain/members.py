"""The records that a shadow model was trained on, for explanations that are fitted to records: its explanation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mia_audit.explain.private_local import ExplanationSet, Terms
from mia_audit.explain.private_local.solver import Problem

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import nn

    from mia_audit.models import Inputs

ROWS = 256
"""Records that the model labels at once."""


@dataclass
class Members:
    """The members' records as the model takes them, labelled by the model: 2p − 1 of every class.

    `inputs` are the pool's, `member` says who trained shadow model number `shadow`.
    """

    model: nn.Module
    inputs: Inputs | Tensor
    member: Bool[np.ndarray, " N"]
    shadow: int
    _explained: ExplanationSet | None = None
    _last: tuple[Sequence[int], list[Problem]] = field(default=((), []))

    @property
    def explained(self) -> ExplanationSet:
        """The explanation set, labelled once."""
        if self._explained is None:
            rows = torch.as_tensor(np.flatnonzero(self.member), device=self.inputs.device)
            records, values = [], []
            for part in torch.split(rows, ROWS):
                inputs = self.inputs[part]
                with torch.no_grad():
                    logits = self.model(inputs)
                values.append(2 * logits.double().softmax(dim=1).cpu().numpy() - 1)
                records.append(inputs.flatten(1).cpu().numpy())
            self._explained = ExplanationSet.of(np.concatenate(records), np.concatenate(values))
        return self._explained

    def problems(
        self,
        inputs: Float[Tensor, "B ..."],
        records: Sequence[int],
        values: Float[np.ndarray, " B"],
        classes: Int[np.ndarray, " B"],
        terms: Terms,
    ) -> list[Problem]:
        """Return the loss of explaining each record; those of the last batch are kept, for the next explainer of the family."""
        if self._last[0] != records:
            points = self.explained.points(inputs.flatten(1).cpu().numpy())
            self._last = (records, list(self.explained.problems(points, values, classes, terms)))
        return self._last[1]
