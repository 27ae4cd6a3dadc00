"""Draws of stochastic explainers: each model's own."""

from typing import Any

import pytest
import torch

from mia_audit.explain import explainers
from mia_audit.explain.batch import explained_batch

STOCHASTIC = ["gradient_shap", "smoothgrad", "captum:NoiseTunnel+Saliency"]
OPTIONS = {"explain": ["logit"], "explained_class": "true", "gradient_shap_samples": 2, "gradient_shap_sd": 0.1}
SMOOTH = {"smoothgrad_samples": 2, "smoothgrad_noise": 0.2}


def explain(subject: Any, name: str, model: int, seed: int = 0) -> torch.Tensor:
    options = OPTIONS | SMOOTH
    records = range(len(subject.inputs))
    batch = explained_batch(subject.model, subject.inputs, subject.labels, records, options, seed, False, number=model)
    return explainers[name].attribute(batch, options)["logit"]


@pytest.mark.parametrize("name", STOCHASTIC)
def test_every_model_has_its_own_draws(name: str, convolution: Any) -> None:
    first, again, other = (explain(convolution, name, model) for model in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert not torch.allclose(first, explain(convolution, name, 0, seed=1))
