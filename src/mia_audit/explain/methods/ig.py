"""Integrated gradients (Sundararajan et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import PositiveInt

from mia_audit.explain.catalogue import explainer
from mia_audit.sections import Section

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch


class Nodes(Section):
    """The key of integrated gradients."""

    ig_nodes: PositiveInt = 25
    """Gauss–Legendre nodes of the integral."""


@explainer("ig", options=(Nodes,), complete=True, multiplied=True, label="integrated gradients")
def integrated_gradients(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return x ⊙ ∫₀¹ ∇f(tx) dt by Gauss–Legendre quadrature; the baseline is 0 in the model's (normalised) input space."""
    return {quantity: batch.inputs * integral for quantity, integral in _integrals(batch, options).items()}


@explainer("ig-gradient", options=(Nodes,), label="integrated gradients without the input")
def integrated_gradients_alone(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return ∫₀¹ ∇f(tx) dt, integrated gradients before they are multiplied by the input (Harder et al. 2020, Figures 4 and 9)."""
    return _integrals(batch, options)


def _integrals(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    integrals = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    nodes, weights = np.polynomial.legendre.leggauss(options["ig_nodes"])
    for node, weight in zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True):
        for quantity, gradient in batch.gradients_at(node * batch.inputs).items():
            integrals[quantity].add_(gradient, alpha=weight)
    return integrals
