"""SmoothGrad (Smilkov et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveInt

from mia_audit.explain.catalogue import explainer
from mia_audit.explain.randomness import Randomness, with_draws
from mia_audit.sections import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from torch import Tensor

    from mia_audit.explain.batch import Batch


class Samples(Section):
    """The keys of SmoothGrad."""

    smoothgrad_samples: PositiveInt = 10
    """Number of noisy copies of a record whose gradients are averaged."""
    smoothgrad_noise: float = Field(0.15, gt=0)
    """Standard deviation of the noise in these copies, as a share of the record's range (largest minus smallest number)."""


@explainer("smoothgrad", options=(Samples, Randomness), label="SmoothGrad")
@with_draws
def smoothgrad(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the mean over samples of ∇f(x + σ n), n ~ N(0, 1) per coordinate, σ a share of the record's own range.

    A record's draws are keyed by the seed, the record's number and, unless `randomness` is `shared`, the model's
    number. So they depend neither on the batch nor on the device.
    """
    samples = options["smoothgrad_samples"]
    flat = batch.inputs.flatten(1)
    spread = options["smoothgrad_noise"] * (flat.amax(dim=1) - flat.amin(dim=1))
    means = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    for sample in range(samples):
        noise = record_noise(batch.seed, batch.records, batch.inputs, sample)
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
