"""GradientSHAP (Lundberg and Lee 2017, as captum's GradientShap computes it)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.explain.catalogue import explainer
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from mia_audit.explain.batch import Batch


@explainer("gradient_shap", options=("gradient_shap_samples", "gradient_shap_sd"), multiplied=True)
def gradient_shap(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the mean over samples of (x − b) ⊙ ∇f(b + c (x − b)) with b ~ N(0, sd²) per coordinate and c ~ U(0, 1).

    A record's draws are keyed by the seed and its number, so they depend neither on the batch nor on the device, and
    are the same for every model.
    """
    samples = options["gradient_shap_samples"]
    draws = [
        record_draws(batch.seed, record, samples, tuple(batch.inputs.shape[1:]), options["gradient_shap_sd"])
        for record in batch.records
    ]
    means = {quantity: batch.inputs.new_zeros(batch.inputs.shape) for quantity in batch.quantities}
    for sample in range(samples):
        baselines = batch.inputs.new_tensor(np.stack([baseline[sample] for baseline, _ in draws]))
        coefficients = batch.inputs.new_tensor(np.stack([coefficient[sample] for _, coefficient in draws]))
        difference = batch.inputs - baselines
        points = baselines + coefficients.reshape(-1, *[1] * (difference.ndim - 1)) * difference
        for quantity, gradient in batch.gradients_at(points).items():
            means[quantity].addcmul_(difference, gradient, value=1 / samples)
    return means


def record_draws(
    seed: int, record: int, samples: int, shape: tuple[int, ...], sd: float
) -> tuple[Float[np.ndarray, "S ..."], Float[np.ndarray, " S"]]:
    """Return a record's baselines [samples, *shape] and interpolation coefficients [samples], float32."""
    random = generator(seed, "gradient_shap", record)
    coefficients = random.random(samples, dtype=np.float32)
    return sd * random.standard_normal((samples, *shape), dtype=np.float32), coefficients
