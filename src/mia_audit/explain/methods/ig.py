"""Integrated gradients (Sundararajan et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Discriminator, Field, PositiveInt, Tag

from mia_audit.explain.catalogue import explainer
from mia_audit.sections import Section

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch


INTERVALS = (8, 16, 32, 64)
"""Numbers of intervals that adaptive integrals try in turn (n intervals have n + 1 nodes); the result of the last is always accepted."""

Share = Annotated[float, Field(gt=0, lt=1)]


class Nodes(Section):
    """The key of integrated gradients."""

    ig_nodes: Annotated[
        Annotated[PositiveInt, Tag("number")]
        | Annotated[dict[Literal["completeness"], Share], Field(min_length=1), Tag("adaptive")],
        Discriminator(lambda value: "adaptive" if isinstance(value, Mapping) else "number"),
    ] = 25
    """Gauss–Legendre nodes of the integral; `{completeness: 0.05}`: 9 to 65 nodes, until a record's error is at most 5 % of f(x) − f(0)."""


@explainer("ig", options=(Nodes,), complete=True, multiplied=True, label="integrated gradients")
def integrated_gradients(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return x ⊙ ∫₀¹ ∇f(tx) dt; the baseline is 0 in the model's (normalised) input space."""
    return {quantity: batch.inputs * integral for quantity, integral in _integrals(batch, options).items()}


@explainer("ig-gradient", options=(Nodes,), label="integrated gradients without the input")
def integrated_gradients_alone(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return ∫₀¹ ∇f(tx) dt, integrated gradients before multiplication by the input (Harder et al. 2020, Figures 4 and 9)."""
    return _integrals(batch, options)


def _integrals(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return ∫₀¹ ∇f(tx) dt by Gauss–Legendre quadrature or, if a completeness is given, with adaptive nodes."""
    if isinstance(options["ig_nodes"], Mapping):
        return adaptive_integrals(batch, options["ig_nodes"]["completeness"])
    integrals = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    nodes, weights = np.polynomial.legendre.leggauss(options["ig_nodes"])
    for node, weight in zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True):
        for quantity, gradient in batch.gradients_at(node * batch.inputs).items():
            integrals[quantity].add_(gradient, alpha=weight)
    return integrals


def adaptive_integrals(batch: Batch, share: float) -> dict[str, Tensor]:
    """Return ∫₀¹ ∇f(tx) dt of every quantity by Clenshaw–Curtis quadrature, with as many nodes as each record needs.

    A record moves on to the next of `INTERVALS` while the completeness error |Σ x ∫∇f − (f(x) − f(0))| of some quantity
    exceeds `share` times |f(x) − f(0)|. Nodes are nested (Clenshaw and Curtis 1960), so none is evaluated twice: the
    gradient at a node is added to every integral that has this node. A pass has at most as many points as the batch has
    records. If few records are left, a pass evaluates several nodes of each.
    """
    import torch

    effects = batch.effects()
    whole = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    rows = torch.arange(len(batch.inputs), device=batch.inputs.device)
    sums = [{quantity: value.clone() for quantity, value in whole.items()} for _ in INTERVALS]
    for level, intervals in enumerate(INTERVALS):
        known = INTERVALS[level - 1] if level else 0
        new = [k for k in range(intervals + 1) if not known or k % (intervals // known)]
        inputs, count = batch.inputs[rows], max(1, len(batch.inputs) // len(rows))
        for some in (new[first : first + count] for first in range(0, len(new), count)):
            points = torch.cat([(1 - np.cos(np.pi * k / intervals)) / 2 * inputs for k in some])
            at_once = replace(batch, classes=batch.classes[rows].repeat(len(some)))
            for quantity, gradients in at_once.gradients_at(points).items():
                for k, gradient in zip(some, gradients.chunk(len(some)), strict=True):
                    for finer, total in zip(INTERVALS[level:], sums[level:], strict=True):
                        total[quantity].add_(gradient, alpha=float(clenshaw_curtis(finer)[k * (finer // intervals)]))
        unfinished = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        for quantity, effect in effects.items():
            whole[quantity][rows] = sums[level][quantity]
            attributed = (inputs * sums[level][quantity]).flatten(1).sum(dim=1, dtype=torch.float64)
            unfinished |= (attributed - effect[rows]).abs() > share * effect[rows].abs()
        rows = rows[unfinished]
        if not len(rows):
            break
        sums = [{quantity: value[unfinished] for quantity, value in total.items()} for total in sums]
    return whole


@cache
def clenshaw_curtis(intervals: int) -> np.ndarray:
    """Return the weights of the nodes (1 − cos(πk/n)) / 2, k = 0 … n, for an integral from 0 to 1; n is even."""
    k, j = np.arange(intervals + 1)[:, None], np.arange(1, intervals // 2 + 1)
    factors = np.where(2 * j == intervals, 1, 2) / (4 * j**2 - 1)
    inner = 1 - (factors * np.cos(2 * np.pi * j * k / intervals)).sum(axis=1)
    weights: np.ndarray = inner * np.where((k[:, 0] == 0) | (k[:, 0] == intervals), 1, 2) / (2 * intervals)
    return weights
