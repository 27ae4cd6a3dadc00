"""GradientSHAP (Lundberg and Lee 2017, as captum's GradientShap computes it)."""

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
    """The keys of GradientSHAP."""

    gradient_shap_samples: PositiveInt = 5
    """Number of samples that are averaged."""
    gradient_shap_sd: float = Field(0.001, gt=0)
    """Standard deviation of the normally distributed baselines."""


@explainer("gradient_shap", options=(Samples, Randomness), label="GradientSHAP")
@with_draws
def gradient_shap(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the mean over samples of (x − b) ⊙ ∇f(b + c (x − b)) with b ~ N(0, sd²) per coordinate and c ~ U(0, 1).

    A record's draws are keyed by the seed, the record's number and, unless `randomness` is `shared`, the model's
    number. So they depend neither on the batch nor on the device.
    """
    samples, sd = options["gradient_shap_samples"], options["gradient_shap_sd"]
    means = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    for sample in range(samples):
        baselines, coefficients = record_draws(batch.seed, batch.records, batch.inputs, sample, samples, sd)
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
