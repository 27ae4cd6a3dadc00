"""A model and the records that it explains, for measures that evaluate the model at other points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.explain.quantity import QUANTITIES
from mia_audit.explanation_metrics.catalogue import DRAWS
from mia_audit.seeds import generator


@dataclass(frozen=True)
class Probe:
    """Explanations of n records by one torch module, and functions for measures that test them.

    `attributions` have the shape of `inputs`; if they are `multiplied` by the input, like input × gradient, they are in
    units of the explained quantity, otherwise in units of its gradient. `explain` returns attributions at other points,
    for the classes of given rows of the records.
    """

    model: nn.Module
    inputs: Float[Tensor, "n ..."]
    records: Sequence[int]
    classes: Int[Tensor, " n"]
    quantity: str
    attributions: Float[Tensor, "n ..."]
    multiplied: bool
    explain: Callable[[Float[Tensor, "b ..."], Sequence[int]], Float[Tensor, "b ..."]]
    seed: int
    batch: int

    def value(self, points: Float[Tensor, "b ..."], classes: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Return the quantity explained at points, float64."""
        with torch.no_grad():
            return QUANTITIES[self.quantity].value(self.model(points).double(), classes)

    def probability(self, points: Float[Tensor, "b ..."], classes: Int[Tensor, " b"]) -> Float[np.ndarray, " b"]:
        """Return the class's probability at points, float64, computed batch by batch."""
        parts = []
        with torch.no_grad():
            for start in range(0, len(points), self.batch):
                logits = self.model(points[start : start + self.batch]).double()
                parts.append(QUANTITIES["probability"].value(logits, classes[start : start + self.batch]))
        return torch.cat(parts).cpu().numpy()

    def rows(self, times: int) -> list[list[int]]:
        """Split the records into lists that fit into a batch when every record is repeated `times` times."""
        size = max(1, self.batch // times)
        return [list(range(start, min(start + size, len(self.inputs)))) for start in range(0, len(self.inputs), size)]

    def draws(self, purpose: str, rows: Sequence[int], times: int) -> Float[Tensor, "b ..."]:
        """Draw `times` points uniformly from [0, 1) for each record in turn. The draws depend only on the record."""
        shape = (times, *self.inputs.shape[1:])
        drawn = [
            generator(self.seed, DRAWS, purpose, self.records[row]).random(shape, dtype=np.float32) for row in rows
        ]
        return self.inputs.new_tensor(np.concatenate(drawn))
