"""Explainers of torch modules by gradients, and `own:NAME`, what the `explain` of a user's script returns under that name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Discriminator, Field, PositiveInt, Tag

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import GRADIENT, OWN, Explainer, explainer, explainers
from mia_audit.sections import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from torch import Tensor

    from mia_audit.explain.batch import Batch


@explainer("ixg", family=GRADIENT, multiplied=True, label="input × gradient")
def input_x_gradient(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return x ⊙ ∇f(x) (Shrikumar et al. 2016)."""
    return {quantity: batch.inputs * gradient for quantity, gradient in batch.gradients.items()}


@explainer("saliency", family=GRADIENT)
def saliency(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return |∇f(x)| (Simonyan et al. 2014)."""
    return {quantity: gradient.abs() for quantity, gradient in batch.gradients.items()}


class SmoothGradSamples(Section):
    """The keys of SmoothGrad."""

    smoothgrad_samples: PositiveInt = 10
    """Number of noisy copies of a record whose gradients are averaged."""
    smoothgrad_noise: float = Field(0.15, gt=0)
    """Standard deviation of the noise in these copies, as a share of the record's range (largest minus smallest number)."""


@explainer("smoothgrad", options=(SmoothGradSamples,), label="SmoothGrad")
def smoothgrad(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the mean over samples of ∇f(x + σ n), n ~ N(0, 1) per coordinate, σ a share of the record's own range (Smilkov et al. 2017).

    A record's draws are keyed by the seed, the model's and the record's number, so they depend neither on the batch nor
    on the device.
    """
    samples = options["smoothgrad_samples"]
    flat = batch.inputs.flatten(1)
    spread = options["smoothgrad_noise"] * (flat.amax(dim=1) - flat.amin(dim=1))
    means = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    for sample in range(samples):
        noise = record_noise(batch.draws, batch.records, batch.inputs, sample)
        points = batch.inputs + spread.reshape(-1, *[1] * (noise.ndim - 1)) * noise
        for quantity, gradient in batch.gradients_at(points).items():
            means[quantity].add_(gradient, alpha=1 / samples)
    return means


def record_noise(
    seed: int, records: Sequence[int], like: Float[Tensor, "B ..."], sample: int
) -> Float[Tensor, "B ..."]:
    """Return the standard normal numbers of one sample of every record, with the type and device of `like`."""
    from mia_audit.explain.counter_rng import normals, stream_keys

    keys = stream_keys(seed, "smoothgrad", records, like.device)
    size = prod(like.shape[1:])
    return normals(keys, sample * ((size + 1) // 2), size).reshape(like.shape).to(like)


class GradientShapSamples(Section):
    """The keys of GradientSHAP."""

    gradient_shap_samples: PositiveInt = 5
    """Number of samples that are averaged."""
    gradient_shap_sd: float = Field(0.001, gt=0)
    """Standard deviation of the normally distributed baselines."""


@explainer("gradient_shap", options=(GradientShapSamples,), label="GradientSHAP")
def gradient_shap(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the mean over samples of (x − b) ⊙ ∇f(b + c (x − b)) with b ~ N(0, sd²) per coordinate and c ~ U(0, 1).

    That is captum's GradientShap (Lundberg and Lee 2017). A record's draws are keyed by the seed, the model's and the
    record's number, so they depend neither on the batch nor on the device.
    """
    samples, sd = options["gradient_shap_samples"], options["gradient_shap_sd"]
    means = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    for sample in range(samples):
        baselines, coefficients = record_draws(
            batch.draws, batch.records, batch.inputs, sample=sample, samples=samples, sd=sd
        )
        difference = batch.inputs - baselines
        points = baselines + coefficients.reshape(-1, *[1] * (difference.ndim - 1)) * difference
        for quantity, gradient in batch.gradients_at(points).items():
            means[quantity].addcmul_(difference, gradient, value=1 / samples)
    return means


def record_draws(
    seed: int, records: Sequence[int], like: Float[Tensor, "B ..."], sample: int, samples: int, sd: float
) -> tuple[Float[Tensor, "B ..."], Float[Tensor, " B"]]:
    """Return every record's baseline and interpolation coefficient for one sample, with the type and device of `like`.

    A record's stream begins with its `samples` coefficients; the baselines follow, one sample after the other.
    """
    from mia_audit.explain.counter_rng import normals, stream_keys, uniforms

    keys = stream_keys(seed, "gradient_shap", records, like.device)
    size = prod(like.shape[1:])
    coefficients = uniforms(keys, sample, 1)[:, 0]
    baselines = normals(keys, samples + sample * ((size + 1) // 2), size).mul_(sd)
    return baselines.reshape(like.shape).to(like), coefficients.to(like)


@explainer(
    "gradcam",
    multiplied=True,
    label="Grad-CAM",
    reads=lambda kind: kind.channels,
    reads_what="models of images with convolutions or transformer blocks",
)
def gradcam(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return ReLU(Σ_k α_k A_k), [B, 1, H, W], interpolated bilinearly to the inputs, where α_k is the mean of ∂f/∂A_k over positions.

    That is Grad-CAM (Selvaraju et al. 2017; equations 4 and 5 of the FADP paper). A is the output of a CNN's last
    convolution, or of the first norm in a transformer's last block, with tokens arranged as in the image. Raises
    UserError for a model that has neither, and for a model that does not take images.
    """
    import torch
    import torch.nn.functional as F

    from mia_audit.explain.batch import QUANTITIES
    from mia_audit.models.passes import channels_of, forward_from

    channels = channels_of(batch.model, "explainer 'gradcam'")
    outputs, logits = forward_from(batch.model, channels.maps, batch.inputs)
    activations = channels.images(outputs.detach())
    maps = {}
    for quantity in batch.quantities:
        cotangent = QUANTITIES[quantity].gradient(logits.detach().double(), batch.classes).to(logits.dtype)
        (gradient,) = torch.autograd.grad(logits, outputs, cotangent, retain_graph=True)
        weights = channels.images(gradient).mean(dim=(2, 3), keepdim=True)
        heat = (weights * activations).sum(dim=1, keepdim=True).relu()
        maps[quantity] = F.interpolate(heat, size=tuple(batch.inputs.shape[2:]), mode="bilinear", align_corners=False)
    return maps


def _asked(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    raise UserError("explainers.methods: own:NAME explains only models whose script defines predict and explain")


def _by_name(match: re.Match[str]) -> Explainer:
    return Explainer(
        _asked,
        family="own",
        quantities=("logit",),
        multiplied=True,
        label=f"the model's own {match['name']}",
        needs_torch_module=False,
        learners=("script",),
    )


explainers.register_pattern(rf"{OWN}(?P<name>\w+)", _by_name, example="own:shap")


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
    return np.asarray(inner * np.where((k[:, 0] == 0) | (k[:, 0] == intervals), 1, 2) / (2 * intervals))
