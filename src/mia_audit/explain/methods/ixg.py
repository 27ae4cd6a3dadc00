"""Input × gradient (Shrikumar et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.explain.catalogue import GRADIENT, explainer

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch


@explainer("ixg", family=GRADIENT, multiplied=True, label="input × gradient")
def input_x_gradient(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return x ⊙ ∇f(x)."""
    return {quantity: batch.inputs * gradient for quantity, gradient in batch.gradients.items()}
