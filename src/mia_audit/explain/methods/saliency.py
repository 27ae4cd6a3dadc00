"""Saliency (Simonyan et al. 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.explain.catalogue import GRADIENT, explainer

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch


@explainer("saliency", family=GRADIENT)
def saliency(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return |∇f(x)|."""
    return {quantity: gradient.abs() for quantity, gradient in batch.gradients.items()}
