"""Summaries of attributions: a few scalars per record, reduced on the attributions' device."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


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
