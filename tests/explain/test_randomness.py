"""Draws of stochastic explainers: each model's own, shared by all, or the mean of several requests."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from mia_audit.explain import explainers
from mia_audit.explain.batch import explained_batch
from mia_audit.explain.catalogue import Explainers
from mia_audit.explain.randomness import draw_seeds

STOCHASTIC = ["gradient_shap", "smoothgrad", "captum:NoiseTunnel+Saliency"]
OPTIONS = {"explain": ["logit"], "explained_class": "true", "gradient_shap_samples": 2, "gradient_shap_sd": 0.1}
SMOOTH = {"smoothgrad_samples": 2, "smoothgrad_noise": 0.2}


def explain(subject: Any, name: str, model: int | None, randomness: str = "own", seed: int = 0) -> torch.Tensor:
    options = OPTIONS | SMOOTH | {"randomness": randomness}
    records = range(len(subject.inputs))
    batch = explained_batch(subject.model, subject.inputs, subject.labels, records, options, seed, False, number=model)
    return explainers[name].attribute(batch, options)["logit"]


@pytest.mark.parametrize("name", STOCHASTIC)
def test_every_model_has_its_own_draws(name: str, convolution: Any) -> None:
    first, again, other = (explain(convolution, name, model) for model in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert not torch.allclose(first, explain(convolution, name, 0, seed=1))


@pytest.mark.parametrize("name", STOCHASTIC)
def test_shared_draws_are_the_same_for_all_models(name: str, convolution: Any) -> None:
    first, other, none = (explain(convolution, name, model, "shared") for model in (0, 1, None))
    assert torch.equal(first, other) and torch.equal(first, none)


@pytest.mark.parametrize("name", STOCHASTIC)
def test_requests_are_averaged_and_their_noise_falls(name: str, convolution: Any) -> None:
    assert torch.equal(explain(convolution, name, 3, "averaged:1"), explain(convolution, name, 3))
    truth = explain(convolution, name, 0, "averaged:200")
    errors = [(explain(convolution, name, 7, f"averaged:{r}") - truth).square().mean() for r in (1, 16)]
    assert errors[1] < errors[0] / 6


def test_seeds_of_requests_differ() -> None:
    seeds = draw_seeds(5, 2, "averaged:4")
    assert len(set(seeds)) == 4 and seeds[0] == draw_seeds(5, 2, "own")[0]
    assert draw_seeds(5, 2, "shared") == draw_seeds(5, None, "averaged:4") == [5]


def test_the_key_is_read_by_stochastic_explainers_alone() -> None:
    assert Explainers(methods=("smoothgrad",)).model_extra["randomness"] == "own"
    assert (
        Explainers(methods=("captum:GradientShap",), randomness="averaged:8").model_extra["randomness"] == "averaged:8"
    )
    assert "randomness" not in Explainers(methods=("ixg", "captum:DeepLift")).model_extra
    for wrong in ("none", "averaged:0", "averaged"):
        with pytest.raises(ValidationError, match="randomness"):
            Explainers(methods=("smoothgrad",), randomness=wrong)
