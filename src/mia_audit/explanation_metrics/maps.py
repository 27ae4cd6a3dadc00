"""A model and the records that it explains, for measures that evaluate the model at other points.

Convert attributions to maps: one number per pixel or column, at the resolution of the model's input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.explain.batch import QUANTITIES
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


def at_inputs(attributions: Float[Tensor, "n ..."], shape: tuple[int, ...]) -> Float[Tensor, "n ..."]:
    """Convert attributions of another shape to the shape of the inputs.

    Attributions of a layer, [n, c, h, w], or of several maps side by side are summed over channels, interpolated
    bilinearly to the size of the input, and divided equally among its channels. If a table's record has several rows of
    attributions, [n, t, d], the rows are summed. Raises ValueError for attributions that do not correspond to positions
    of the input.
    """
    if attributions.shape[1:] == shape:
        return attributions
    if len(shape) == 1 and attributions.ndim == 3 and attributions.shape[2:] == shape:
        return attributions.sum(dim=1)
    if len(shape) == 3 and attributions.ndim == 4:
        summed = attributions.sum(dim=1, keepdim=True)
        enlarged = F.interpolate(summed, size=shape[1:], mode="bilinear", align_corners=False)
        return enlarged.expand(-1, shape[0], -1, -1) / shape[0]
    raise ValueError(f"attributions of shape {list(attributions.shape[1:])} for inputs of shape {list(shape)}")


def to_maps(attributions: Float[Tensor, "n ..."]) -> Float[np.ndarray, "n ..."]:
    """Return attributions summed over channels: [n, H, W] for images, [n, d] for tables, float64."""
    values = attributions.double()
    return (values.sum(dim=1) if values.ndim == 4 else values).cpu().numpy()
