"""Locally linear maps against their formulas, logistic regression and generic per-record gradients."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from mia_audit.errors import UserError
from mia_audit.models.architecture import build, describe
from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
from mia_audit.models.weights import load_weights, save_weights
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.privacy.noise import automatic, flat
from mia_audit.privacy.per_record import ClippedSum, add_clipped, per_record_gradients
from mia_audit.training.loop import fit
from mia_audit.training.section import Training

LLM = "locally-linear-maps"
SHAPES = st.sampled_from([(5,), (1, 3, 4), (2, 3, 3)])


def maps(shape: tuple[int, ...], classes: int = 4, seed: int = 0, **parameters: object) -> LocallyLinearMaps:
    model = build(LLM, parameters, shape, classes, seed)  # type: ignore[arg-type]
    assert isinstance(model, LocallyLinearMaps)
    with torch.no_grad():
        model.bias.normal_(generator=torch.Generator().manual_seed(seed))
    return model.double()


def draw(shape: tuple[int, ...], count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(SHAPES, st.integers(1, 4), st.sampled_from(["none", 1, 5]), st.floats(0.01, 50), st.integers(0, 5))
@settings(deadline=None, max_examples=40, derandomize=True)
def test_the_forward_pass_is_its_formula(
    shape: tuple[int, ...], count: int, projection: object, beta: float, seed: int
) -> None:
    model = maps(shape, seed=seed, maps=count, projection=projection, beta=beta)
    inputs = draw(shape, 3, seed)
    weight, bias = model.weight.detach().numpy(), model.bias.detach().numpy()
    for record, found in zip(inputs, model(inputs).detach().numpy(), strict=True):
        x = record.flatten().numpy()
        for k in range(4):
            h = [x if model.projections is None else model.projections[m].numpy() @ x for m in range(count)]
            g = np.array([weight[m, k] @ h[m] + bias[m, k] for m in range(count)])
            shares = np.exp(beta * (g - g.max()))
            assert found[k] == pytest.approx((shares / shares.sum()) @ g, abs=1e-9)


@given(st.integers(1, 5), st.sampled_from(["none", 3]), st.integers(0, 20))
@settings(deadline=None, max_examples=30, derandomize=True)
def test_beta_goes_from_the_mean_of_the_maps_to_their_maximum(count: int, projection: object, seed: int) -> None:
    inputs = draw((5,), 6, seed)
    flat_, sharp = (maps((5,), seed=seed, maps=count, projection=projection, beta=beta) for beta in (1e-9, 1e9))
    scores = flat_.scores(flat_.projected(inputs))
    assert torch.allclose(flat_(inputs), scores.mean(dim=1), atol=1e-6)
    assert torch.allclose(sharp(inputs), scores.amax(dim=1), atol=1e-6)
    between = maps((5,), seed=seed, maps=count, projection=projection, beta=2.0)(inputs)
    assert (between >= flat_(inputs) - 1e-6).all() and (between <= sharp(inputs) + 1e-6).all()


@given(st.integers(1, 4), st.sampled_from(["none", 2]), st.integers(0, 10))
@settings(deadline=None, max_examples=20, derandomize=True)
def test_filters_are_the_maps_in_the_space_of_the_inputs(count: int, projection: object, seed: int) -> None:
    model = maps((1, 3, 4), seed=seed, maps=count, projection=projection)
    inputs = draw((1, 3, 4), 3, seed)
    direct = torch.einsum("mkd,bd->bmk", model.filters(), inputs.flatten(1)) + model.bias
    assert torch.allclose(direct, model.scores(model.projected(inputs)), atol=1e-9)


def test_parameters_are_counted_as_in_the_paper() -> None:
    assert describe("llm", LLM, {"maps": 30, "projection": 300}, (1, 28, 28), 10)["parameters"] == 90_300
    assert describe("llm", LLM, {"maps": 2}, (62,), 4)["parameters"] == 2 * 4 * 63


@pytest.mark.parametrize(("projection", "theirs"), [(6, (4, 7, 3)), ("none", (10, 3, 4))])
def test_initial_weights_can_be_those_of_the_authors(projection: object, theirs: tuple[int, ...]) -> None:
    """Theirs is one tensor, [M, D' + 1, K] or, without projections, [D + 1, K, M], drawn by PyTorch's kaiming_uniform_."""
    fan, _ = torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(theirs))
    model = build("locally-linear-maps", {"maps": 4, "projection": projection, "initial": "kaiming"}, (9,), 3, 0)
    values = torch.cat([parameter.flatten() for parameter in model.parameters()]).abs()
    assert 0.9 * fan**-0.5 < float(values.max()) <= fan**-0.5 and float(model.bias.abs().max()) > 0


def test_projections_are_random_fixed_and_kept_with_the_weights(tmp_path) -> None:
    one, same, other = (maps((1, 8, 8), seed=seed, maps=3, projection=40) for seed in (1, 1, 2))
    assert torch.equal(one.projections, same.projections) and not torch.equal(one.projections, other.projections)
    assert "projections" not in dict(one.named_parameters())
    assert float(one.projections.std()) == pytest.approx(40**-0.5, rel=0.05)
    scaled = maps((1, 8, 8), maps=3, projection=40, scale=2**-0.5)
    assert float(scaled.projections.std()) == pytest.approx(2**-0.5, rel=0.05)
    save_weights(one, tmp_path / "one.safetensors")
    load_weights(other, tmp_path / "one.safetensors")
    assert torch.equal(one.projections, other.projections)


def test_one_map_is_logistic_regression() -> None:
    """The optimum of the same regularised loss, found by scikit-learn."""
    features, labels = load_iris(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    inputs, truth = torch.tensor(features), torch.tensor(labels)
    model = build(LLM, {"maps": 1, "beta": 3.0}, (4,), 3, seed=0).double()
    strength = 0.01

    def penalised() -> torch.Tensor:
        return F.cross_entropy(model(inputs), truth) + strength / 2 * model.get_parameter("weight").square().sum()

    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        value = penalised()
        value.backward()
        return value

    optimizer.step(step)
    oracle = LogisticRegression(C=1 / (strength * len(labels)), tol=1e-10, max_iter=10_000).fit(features, labels)
    expected = -np.mean(oracle.predict_log_proba(features)[np.arange(len(labels)), labels])
    expected += strength / 2 * np.square(oracle.coef_).sum()
    assert penalised().item() == pytest.approx(expected, abs=1e-6)
    assert np.allclose(model(inputs).softmax(1).detach(), oracle.predict_proba(features), atol=1e-4)


@pytest.mark.parametrize("clipping", [automatic(1.0), flat(0.5)], ids=["automatic", "flat"])
@given(SHAPES, st.integers(1, 4), st.sampled_from(["none", 1, 5]), st.floats(0.01, 20), st.integers(0, 20))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_the_clipped_sum_in_closed_form_is_the_generic_one(
    clipping: object, shape: tuple[int, ...], count: int, projection: object, beta: float, seed: int
) -> None:
    model = maps(shape, seed=seed, maps=count, projection=projection, beta=beta)
    inputs, labels = draw(shape, 7, seed), torch.arange(7) % 4
    gradients, losses = per_record_gradients(model)(inputs, labels)
    expected = inputs.new_zeros(sum(value.numel() for value in model.parameters()))
    add_clipped(gradients, clipping, expected)  # type: ignore[arg-type]
    total, loss = ClippedSum(model, clipping, 3)(inputs, labels)  # type: ignore[arg-type]
    assert torch.allclose(total, expected, atol=1e-10)
    assert float(loss) == pytest.approx(float(losses.sum()))


def test_a_record_whose_gradient_is_not_finite_adds_nothing() -> None:
    model = maps((5,), maps=2)
    inputs, labels = draw((5,), 4, 0), torch.arange(4)
    clean, _ = ClippedSum(model, automatic(1.0), 8)(inputs[1:], labels[1:])
    inputs[0, 2] = torch.inf
    total, _ = ClippedSum(model, automatic(1.0), 8)(inputs, labels)
    assert torch.allclose(total, clean, rtol=0, atol=1e-7)


def test_bias_terms_alone_are_trained_by_the_generic_way() -> None:
    model = maps((5,), maps=2)
    model.weight.requires_grad_(False)
    total, _ = ClippedSum(model, automatic(1.0), 8)(draw((5,), 4, 0), torch.arange(4))
    assert total.shape == (8,) and total.isfinite().all()


def test_several_maps_learn_what_one_cannot() -> None:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 2, generator=random)
    labels = (inputs.prod(dim=1) > 0).long()  # an exclusive or
    accuracies = []
    for count in (1, 4):
        model = build(LLM, {"maps": count}, (2,), 2, seed=0)
        training = Training(epochs=30, batch=50, learning_rate=0.1, optimizer="adam")
        job = Job(model=model, records=200, epsilon=math.inf, training=training, micro_batch=64, key=b"test")
        fit(job, mechanisms["none"].protect(Mechanism(mechanism="none"), job), inputs, labels)
        accuracies.append(float((model(inputs).argmax(dim=1) == labels).float().mean()))
    assert accuracies[0] < 0.7 and accuracies[1] > 0.95


@pytest.mark.parametrize(
    ("parameters", "shape", "told"),
    [
        ({"projection": 65}, (1, 8, 8), "parameters.projection: 65 dimensions, but a record has only 64"),
        ({"projection": 0}, (5,), "parameters.projection: expected a whole number of at least 1, or none, not 0"),
        ({"maps": 0}, (5,), "parameters.maps: expected a whole number of at least 1, not 0"),
        ({"maps": 2.5}, (5,), "parameters.maps: expected a whole number"),
        ({"beta": 0}, (5,), "parameters.beta: a number above 0 was expected, not 0"),
        ({"beta": -1.0}, (5,), "parameters.beta: a number above 0 was expected, not -1.0"),
        ({"projection": 3, "scale": 0}, (5,), "parameters.scale: a number above 0 was expected, not 0"),
        ({"scale": 1.0}, (5,), "parameters.scale: scales random projections, but projection is none"),
        ({"img_size": 8}, (5,), "parameters.img_size: model 'locally-linear-maps' receives a table of 5 columns"),
        ({"img_size": 0}, (1, 8, 8), "parameters.img_size: expected a whole number of at least 1, not 0"),
        ({"initial": "zero"}, (5,), "parameters.initial: kaiming was expected, not 'zero'"),
        ({"betta": 1}, (5,), "did you mean 'beta'?"),
    ],
)
def test_what_does_not_fit_is_one_line(parameters: dict[str, object], shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(UserError) as raised:
        describe("llm", LLM, parameters, shape, 3)  # type: ignore[arg-type]
    assert told in str(raised.value) and "\n" not in str(raised.value)


def test_weights_of_another_image_size_are_refused(tmp_path) -> None:
    save_weights(maps((1, 4, 4), maps=2), tmp_path / "small.safetensors")
    with pytest.raises(UserError, match=r"small\.safetensors: weights of another architecture: 'weight' differs"):
        load_weights(maps((1, 5, 5), maps=2), tmp_path / "small.safetensors")
    assert describe("llm", LLM, {"maps": 2, "img_size": 6}, (1, 4, 4), 3)["input_shape"] == [1, 6, 6]
