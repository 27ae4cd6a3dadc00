"""Summaries of attributions: a few scalars per record, reduced where the attributions are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from mia_audit.explain.families import SUMMARIES


def _norm(order: float) -> Callable[[Tensor], Tensor]:
    def norm(flat: Tensor) -> Tensor:
        value: Tensor = torch.linalg.vector_norm(flat, ord=order, dim=1, dtype=torch.float64)
        return value

    return norm


def _variance(flat: Float[Tensor, "B d"]) -> Float[Tensor, " B"]:
    """(1/d) Σ (a − mean a)² over all d coordinates (Huang et al. 2024, Algorithm 1)."""
    return flat.double().var(dim=1, correction=0)


_REDUCTIONS = {"variance": _variance, "l1": _norm(1), "l2": _norm(2), "linf": _norm(torch.inf)}


def summarise(attributions: Float[Tensor, "B ..."]) -> dict[str, Float[Tensor, " B"]]:
    """Reduce every record's attributions to variance, L1, L2 and L∞, in float64."""
    flat = attributions.flatten(start_dim=1)
    return {name: _REDUCTIONS[name](flat) for name in SUMMARIES}
