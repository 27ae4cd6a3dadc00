"""A batch of records and one model: the logits, and the gradients that explainers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.explain.quantity import QUANTITIES
from mia_audit.models.fast_pass import FastPass

if TYPE_CHECKING:
    from mia_audit.explain.training_records import Members

CLASSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "predicted": lambda logits, _: logits.argmax(dim=1),
    "true": lambda _, labels: labels,
}
"""The values of `explained_class`: functions from logits [B, C] and labels [B] to the class explained [B]."""


@dataclass(frozen=True)
class Batch:
    """Records as inputs of a model, the explained class of each, and the results of one pass over them.

    `records` are the records' numbers in the pool, which key random draws. `gradients` has the gradient of every
    quantity at the inputs, if requested. `members` are the model's training records, for explainers that need these.
    """

    model: nn.Module
    inputs: Float[Tensor, "B ..."]
    records: Sequence[int]
    seed: int
    quantities: tuple[str, ...]
    logits: Float[Tensor, "B C"]
    classes: Int[Tensor, " B"]
    gradients: Mapping[str, Float[Tensor, "B ..."]]
    members: Members | None = None
    number: int | None = None
    """The model's number, which also keys the draws of stochastic explainers; None if it has none."""

    def gradients_at(self, points: Float[Tensor, "B ..."]) -> dict[str, Float[Tensor, "B ..."]]:
        """Return the gradient of every quantity of the explained class at the given points."""
        points, logits = _forward(self.model, points)
        return _backward(points, logits, self.classes, self.quantities)

    def values(self, logits: Float[Tensor, "B C"]) -> dict[str, Float[Tensor, " B"]]:
        """Return every quantity of the explained class, float64."""
        return {name: QUANTITIES[name].value(logits.double(), self.classes) for name in self.quantities}

    def effects(self) -> dict[str, Float[Tensor, " B"]]:
        """Return f(x) − f(0) of every quantity f, float64. This is the sum of complete attributions."""
        with torch.no_grad():
            baseline = self.model(torch.zeros_like(self.inputs[:1])).expand_as(self.logits)
        before = self.values(baseline)
        return {name: value - before[name] for name, value in self.values(self.logits).items()}


def explained_batch(
    model: nn.Module,
    inputs: Float[Tensor, "B ..."],
    labels: Int[Tensor, " B"],
    records: Sequence[int],
    options: Mapping[str, Any],
    seed: int,
    gradients: bool,
    members: Members | None = None,
    number: int | None = None,
) -> Batch:
    """Run one forward pass and, if gradients are requested, one backward pass per quantity of `options["explain"]`.

    The model's parameters should be frozen, so that only the inputs' gradient is computed.
    """
    quantities = tuple(options["explain"])
    if gradients:
        points, logits = _forward(model, inputs)
        classes = CLASSES[options["explained_class"]](logits.detach(), labels)
        at_inputs = _backward(points, logits, classes, quantities)
    else:
        # compute them as in a pass for gradients, so that the logits are the same bit for bit
        with torch.no_grad(), FastPass():
            logits = model(inputs)
        classes = CLASSES[options["explained_class"]](logits, labels)
        at_inputs = {}
    return Batch(
        model, inputs, records, seed, quantities, logits.detach().double(), classes, at_inputs, members, number
    )


def _forward(model: nn.Module, points: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad(), FastPass():
        points = points.detach().requires_grad_()
        logits = model(points)
    return points, logits


def _backward(points: Tensor, logits: Tensor, classes: Tensor, quantities: Sequence[str]) -> dict[str, Tensor]:
    """Backpropagate every quantity's derivative with respect to the logits through a single graph."""
    outputs = logits.detach().double()
    last = len(quantities) - 1
    gradients = {}
    for index, name in enumerate(quantities):
        cotangent = QUANTITIES[name].gradient(outputs, classes).to(logits.dtype)
        (gradients[name],) = torch.autograd.grad(logits, points, cotangent, retain_graph=index < last)
    return gradients
