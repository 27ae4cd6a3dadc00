"""A batch of records and one model, with all that explainers use: logits, gradients, explained quantities and training records.

Attributions are reduced to a few scalars per record on their device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.solver import Problem
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.explain.vectors import pooling, projection
from mia_audit.models.passes import FastPass
from mia_audit.runtime.device import AdaptiveBatchSize
from mia_audit.seeds import seed_for

if TYPE_CHECKING:
    from jaxtyping import Bool, Shaped

    from mia_audit.models.inputs import Inputs

Function = Callable[[Float[Tensor, "B C"], Int[Tensor, " B"]], Tensor]


@dataclass(frozen=True)
class Quantity:
    """A function of the logits [B, C] and one class per record: its `value` [B], and its `gradient` [B, C] with respect to the logits."""

    value: Function
    gradient: Function


def _of_class(values: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    return values.gather(1, classes[:, None])[:, 0]


def _logit_gradient(logits: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
    return F.one_hot(classes, logits.shape[1]).to(logits)


def _probability_gradient(logits: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
    """Return ∂p_c/∂z_j = −p_c p_j and ∂p_c/∂z_c = p_c Σ_{j≠c} p_j."""
    return _log_probability_gradient(logits, classes) * _probability(logits, classes)[:, None]


def _probability(logits: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    return _of_class(torch.softmax(logits, dim=1), classes)


def _log_probability(logits: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    return _of_class(torch.log_softmax(logits, dim=1), classes)


def _log_probability_gradient(logits: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
    """Return ∂log p_c/∂z_j = −p_j and ∂log p_c/∂z_c = Σ_{j≠c} p_j, which keeps the digits that 1 − p_c would lose."""
    others = logits.softmax(dim=1).scatter(1, classes[:, None], 0.0)
    return (-others).scatter(1, classes[:, None], others.sum(dim=1, keepdim=True))


QUANTITIES = {
    "logit": Quantity(_of_class, _logit_gradient),
    "probability": Quantity(_probability, _probability_gradient),
    "log_probability": Quantity(_log_probability, _log_probability_gradient),
}
"""The values of `explain`: the class's logit (Huang et al. 2024), its softmax probability, or the logarithm of that (Harder et al. 2020)."""


def summarise(attributions: Float[Tensor, "B ..."]) -> dict[str, Float[Tensor, " B"]]:
    """Reduce every record's attributions to variance, L1, L2 and L∞, in float64.

    The variance is (1/d) Σ (a − mean a)² over all d coordinates (Huang et al. 2024, Algorithm 1). Norms are reduced in
    float64 and maxima in float32, which is fastest in torch; `torch.var` takes several times as long.
    """
    flat = attributions.flatten(start_dim=1)
    exact = flat.double()
    centred = exact - exact.mean(dim=1, keepdim=True)
    return {
        "variance": centred.square_().mean(dim=1),
        "l1": torch.linalg.vector_norm(exact, ord=1, dim=1),
        "l2": torch.linalg.vector_norm(exact, dim=1),
        "linf": flat.abs().amax(dim=1).double(),
    }


def vectors(
    attributions: Float[Tensor, "B ..."], options: Mapping[str, Any], seed: int, patch: Sequence[int] = (1, 1)
) -> Float[Tensor, "B m"]:
    """Return every record's attributions over their L1 norm, float16, pooled and projected if they are long (`explain.vectors`)."""
    flat = values = attributions.flatten(start_dim=1)
    norm = torch.linalg.vector_norm(values.double(), ord=1, dim=1, keepdim=True)
    matrices = [torch.from_numpy(one).to(flat) for one in pooling(attributions.shape[1:], options["vectors"], patch)]
    if matrices:
        both = torch.stack([attributions, attributions.abs()], dim=1)
        rows, *columns = matrices
        both = rows.T @ both @ columns[0] if columns else both.flatten(start_dim=2) @ rows
        projected = flat @ torch.from_numpy(projection(flat.shape[1], options["projections"], seed)).to(flat)
        values = torch.cat([both.flatten(start_dim=1), projected], dim=1)
    over: Tensor = values / norm.clamp(min=torch.finfo(torch.float64).tiny)
    return over.half()


def patch_of(model: nn.Module) -> tuple[int, int]:
    """Return the rows and columns of a patch of a model that reads an image in patches; else one pixel."""
    rows, columns = getattr(getattr(model, "patch_embed", None), "patch_size", (1, 1))
    return rows, columns


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
            self._explained = ExplanationSet.from_arrays(
                np.concatenate(records), np.concatenate(values), persons=persons
            )
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
        terms: ExplanationTerms,
    ) -> list[Problem]:
        """Return the problem of explaining each record; those of the last batch are cached for the next explainer of the family."""
        if self._last[0] != records:
            points = self.explained.points(inputs.flatten(1).cpu().numpy())
            self._last = (records, list(self.explained.problems(points, values, classes, terms)))
        return self._last[1]


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

    @property
    def draws(self) -> int:
        """The seed of stochastic explainers, the model's own: an adversary does not know the random numbers of the service."""
        return self.seed if self.number is None else seed_for(self.seed, "explainer of model", self.number, 0)

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
        model=model,
        inputs=inputs,
        records=records,
        seed=seed,
        quantities=quantities,
        logits=logits.detach().double(),
        classes=classes,
        gradients=at_inputs,
        members=members,
        number=number,
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
