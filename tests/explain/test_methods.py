"""Explainers against captum's, against finite differences and against their own promises."""

from typing import Any

import captum.attr
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mia_audit.explain.methods.gradients import INTERVALS, clenshaw_curtis, record_draws, record_noise

from .attribution import attribute

OPTIONS: dict[str, Any] = {
    "explain": ["logit", "probability", "log_probability"],
    "explained_class": "predicted",
    "ig_nodes": 25,
    "gradient_shap_samples": 5,
    "gradient_shap_sd": 0.001,
    "smoothgrad_samples": 4,
    "smoothgrad_noise": 0.15,
}
SEED = 11
RECORDS = [4, 0, 9, 2, 7, 31, 5]
NAMES = ("ixg", "saliency", "ig", "gradient_shap", "smoothgrad")


def explain(subject: Any, name: str, **options: Any) -> dict[str, Tensor]:
    return attribute(subject.model, subject.inputs, subject.labels, RECORDS, name, OPTIONS | options, SEED)


def function(model: nn.Module, quantity: str) -> Any:
    of_logits = {"logit": torch.clone, "probability": torch.nn.Softmax(1), "log_probability": torch.nn.LogSoftmax(1)}
    return lambda inputs: of_logits[quantity](model(inputs))


def assert_agree(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    difference = (ours - theirs).flatten(1).abs().amax(1)
    assert (difference <= tolerance * theirs.flatten(1).abs().amax(1)).all(), difference


def captum_attributions(name: str, subject: Any, quantity: str, target: Tensor, monkeypatch: Any) -> Tensor:
    forward, inputs = function(subject.model, quantity), subject.inputs.clone().requires_grad_()
    if name == "ixg":
        return captum.attr.InputXGradient(forward).attribute(inputs, target=target)
    if name == "saliency":
        return captum.attr.Saliency(forward).attribute(inputs, target=target)
    if name == "ig":
        method = captum.attr.IntegratedGradients(forward)
        return method.attribute(inputs, target=target, n_steps=25, method="gausslegendre")
    # captum wants the samples of a record one after the other
    if name == "smoothgrad":
        ranges = np.ptp(subject.inputs.flatten(1).numpy(), axis=1).reshape(-1, *[1] * (inputs.ndim - 1))
        spread = torch.from_numpy(0.15 * ranges)
        noise = torch.stack([spread * record_noise(SEED, RECORDS, inputs, sample) for sample in range(4)], dim=1)
        monkeypatch.setattr(torch, "normal", lambda mean, sd: noise.flatten(0, 1).reshape(sd.shape))
        method = captum.attr.NoiseTunnel(captum.attr.Saliency(forward))
        return method.attribute(inputs, nt_samples=4, target=target, abs=False)
    draws = [record_draws(SEED, RECORDS, inputs, sample, 5, 0.001) for sample in range(5)]
    baselines = torch.stack([baseline for baseline, _ in draws], dim=1).flatten(0, 1)
    coefficients = torch.stack([coefficient for _, coefficient in draws], dim=1).flatten().numpy()
    monkeypatch.setattr(np.random, "uniform", lambda low, high, size: coefficients[:size])
    monkeypatch.setattr(np.random, "choice", lambda count, size: np.arange(size))
    return captum.attr.GradientShap(forward).attribute(inputs, baselines, target=target, n_samples=5, stdevs=0.0)


@pytest.mark.parametrize("quantity", OPTIONS["explain"])
def test_integrated_gradients_without_the_input_are_those_with_it_before_the_product(
    convolution: Any, quantity: str
) -> None:
    alone, product = explain(convolution, "ig-gradient")[quantity], explain(convolution, "ig")[quantity]
    assert_agree(convolution.inputs * alone, product, 1e-7)


@pytest.mark.parametrize("explained_class", ["predicted", "true"])
@pytest.mark.parametrize("quantity", OPTIONS["explain"])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_captum(
    name: str, quantity: str, explained_class: str, subject: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = subject.labels if explained_class == "true" else subject.model(subject.inputs).argmax(dim=1)
    ours = explain(subject, name, explained_class=explained_class)[quantity]
    theirs = captum_attributions(name, subject, quantity, target, monkeypatch)
    assert_agree(ours, theirs.detach(), subject.tolerance)


def test_the_class_explained_matters(subject: Any) -> None:
    predicted = subject.model(subject.inputs).argmax(dim=1)
    different = predicted != subject.labels
    ours = {which: explain(subject, "ixg", explained_class=which)["logit"] for which in ("predicted", "true")}
    changed = (ours["predicted"] != ours["true"]).flatten(1).any(1)
    assert different.any()
    assert torch.equal(changed, different)


@pytest.mark.parametrize("quantity", OPTIONS["explain"])
def test_gradient_is_the_limit_of_differences(quantity: str, convolution: Any) -> None:
    classes = convolution.model(convolution.inputs).argmax(dim=1)
    step = 1e-6

    def value(inputs: Tensor) -> Tensor:
        return function(convolution.model, quantity)(inputs).gather(1, classes[:, None])[:, 0]

    slopes = torch.empty_like(convolution.inputs)
    for pixel in np.ndindex(1, 8, 8):
        move = torch.zeros_like(convolution.inputs)
        move[(slice(None), *pixel)] = step
        slopes[(slice(None), *pixel)] = (value(convolution.inputs + move) - value(convolution.inputs - move)) / (
            2 * step
        )
    assert_agree(explain(convolution, "saliency")[quantity], slopes.abs(), 1e-7)
    assert_agree(explain(convolution, "ixg")[quantity], convolution.inputs * slopes, 1e-7)


@pytest.mark.parametrize("quantity", OPTIONS["explain"])
def test_integrated_gradients_sum_to_the_change_of_the_quantity(quantity: str, subject: Any) -> None:
    classes = subject.model(subject.inputs).argmax(dim=1)
    forward = function(subject.model, quantity)
    change = forward(subject.inputs) - forward(torch.zeros_like(subject.inputs))
    change = change.gather(1, classes[:, None])[:, 0]
    errors = [
        (explain(subject, "ig", ig_nodes=nodes)[quantity].flatten(1).sum(1) - change).abs().max().item()
        for nodes in (1, 50)
    ]
    assert errors[1] < 1e-4 * change.abs().max() < errors[0]


def test_clenshaw_curtis_is_exact_for_polynomials_and_its_nodes_are_nested() -> None:
    for intervals in INTERVALS:
        nodes = (1 - np.cos(np.pi * np.arange(intervals + 1) / intervals)) / 2
        for degree in range(intervals + 1):
            assert clenshaw_curtis(intervals) @ nodes**degree == pytest.approx(1 / (degree + 1), rel=1e-12)
        assert (clenshaw_curtis(intervals) > 0).all()


@pytest.mark.slow
def test_adaptive_nodes_end_where_every_quantity_is_complete_enough(subject: Any) -> None:
    """And a record's attributions are those of its own number of nodes, whatever the others take."""
    change = {}
    for quantity in ("logit", "probability"):
        classes = subject.model(subject.inputs).argmax(dim=1)
        forward = function(subject.model, quantity)
        difference = forward(subject.inputs) - forward(torch.zeros_like(subject.inputs))
        change[quantity] = difference.gather(1, classes[:, None])[:, 0]
    by_share = {share: explain(subject, "ig", ig_nodes={"completeness": share}) for share in (0.999, 1e-3)}
    exact = explain(subject, "ig", ig_nodes=120)
    for quantity, right in change.items():
        error = (by_share[1e-3][quantity].flatten(1).sum(1) - right).abs()
        assert (error <= 1e-3 * right.abs() + 1e-6).all()
        assert_agree(by_share[1e-3][quantity], exact[quantity], 0.05)
    passed: list[int] = []
    handle = subject.model.register_forward_hook(lambda module, given, output: passed.append(len(given[0])))
    coarse = explain(subject, "ig", ig_nodes={"completeness": 0.999})
    handle.remove()
    assert max(passed) <= len(RECORDS) and sum(passed) >= 9 * len(RECORDS)
    for record in range(len(RECORDS)):
        alone = attribute(
            subject.model,
            subject.inputs[record : record + 1],
            subject.labels[record : record + 1],
            RECORDS[record : record + 1],
            "ig",
            OPTIONS | {"ig_nodes": {"completeness": 0.999}},
            SEED,
        )
        assert_agree(coarse["logit"][record : record + 1], alone["logit"], 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_does_not_depend_on_its_batch(name: str, subject: Any) -> None:
    whole = explain(subject, name)
    order = [5, 0, 3, 6, 2, 1, 4]
    for part in (order[:3], order[3:4], order[4:]):
        alone = attribute(
            subject.model,
            subject.inputs[part],
            subject.labels[part],
            [RECORDS[index] for index in part],
            name,
            OPTIONS,
            SEED,
        )
        for quantity, attributions in alone.items():
            assert_agree(attributions, whole[quantity][part], subject.tolerance)


def test_gradient_shap_draws_are_keyed_by_seed_and_record(subject: Any) -> None:
    again, other_seed, other_records = (
        attribute(subject.model, subject.inputs, subject.labels, records, "gradient_shap", OPTIONS, seed)["logit"]
        for records, seed in ((RECORDS, SEED), (RECORDS, SEED + 1), (RECORDS[::-1], SEED))
    )
    ours = explain(subject, "gradient_shap")["logit"]
    assert torch.equal(ours, again)
    assert not torch.allclose(ours, other_seed)
    assert not torch.allclose(ours, other_records)


def test_gradient_shap_draws_have_the_distribution_of_captums() -> None:
    draws = [record_draws(0, range(100), torch.zeros(100, 3, 4), sample, 50, 0.001) for sample in range(50)]
    baselines = torch.stack([baseline for baseline, _ in draws], dim=1).numpy()
    coefficients = torch.stack([coefficient for _, coefficient in draws], dim=1).numpy()
    assert baselines.shape == (100, 50, 3, 4)
    assert abs(baselines.mean()) < 1e-5
    assert baselines.std() == pytest.approx(0.001, rel=0.01)
    assert coefficients.min() >= 0 and coefficients.max() < 1
    assert coefficients.mean() == pytest.approx(0.5, abs=0.02)
    assert coefficients.std() == pytest.approx(12**-0.5, rel=0.03)


def test_smoothgrad_noise_is_normal_and_keyed_by_seed_and_record() -> None:
    like = torch.zeros(300, 3, 5)
    noise = torch.stack([record_noise(0, range(300), like, sample) for sample in range(3)])
    assert noise.mean() == pytest.approx(0, abs=0.03) and noise.std() == pytest.approx(1, abs=0.03)
    assert abs(torch.corrcoef(noise.flatten(1))[0, 1]) < 0.05, "samples of a record are independent"
    assert torch.equal(record_noise(0, [7], like[:1], 1)[0], noise[1, 7])
    assert not torch.allclose(record_noise(1, [7], like[:1], 1)[0], noise[1, 7])


def test_attributions_of_a_linear_model_are_its_weights() -> None:
    weights = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]], dtype=torch.float64)
    model = nn.Linear(3, 2, bias=False).double().requires_grad_(False)
    model.weight.copy_(weights)
    inputs = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    options = OPTIONS | {"explain": ["logit"], "explained_class": "true", "gradient_shap_sd": 1e-12}
    ours = {
        name: attribute(model, inputs, torch.tensor([0]), [0], name, options, SEED)["logit"][0].tolist()
        for name in NAMES
    }
    assert ours["saliency"] == [1.0, 2.0, 3.0]
    assert ours["smoothgrad"] == pytest.approx([1.0, -2.0, 3.0])
    for name in ("ixg", "ig", "gradient_shap"):
        assert ours[name] == pytest.approx([1.0, -4.0, -3.0], rel=1e-9)
