"""The quantity that is explained: its value and its derivatives with respect to the logits, both in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

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
    """Return ∂p_c/∂z_j = −p_c p_j and ∂p_c/∂z_c = p_c Σ_{j≠c} p_j; 1 − p_c in place of the sum would lose all digits for confident predictions."""
    probabilities = logits.softmax(dim=1)
    others = probabilities.scatter(1, classes[:, None], 0.0)
    gradient = (-others).scatter(1, classes[:, None], others.sum(dim=1, keepdim=True))
    return gradient * _of_class(probabilities, classes)[:, None]


def _probability(logits: Float[Tensor, "B C"], classes: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    return _of_class(torch.softmax(logits, dim=1), classes)


QUANTITIES = {
    "logit": Quantity(_of_class, _logit_gradient),
    "probability": Quantity(_probability, _probability_gradient),
}
"""The values of `explain`: the class's logit (Huang et al. 2024) or its softmax probability."""
