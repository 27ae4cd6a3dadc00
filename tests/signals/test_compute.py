"""Loss and confidence, by torch and by NumPy, against exact decimals and identities; a model's signals against the plain loop."""

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mia_audit.errors import UserError
from mia_audit.explain.batch import summarise
from mia_audit.explain.catalogue import Explainers
from mia_audit.learners import torch_module
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.inputs import Inputs, to_input
from mia_audit.signals import compute
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.families import columns, families
from mia_audit.training import task as outputs
from mia_audit.training.task import Records

from ..explain.attribution import attribute

LOGITS = st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=8)
EXTREMES = st.lists(
    st.sampled_from([0.0, -0.0, 1e-30, 1.0, -1.0, 88.0, 120.0, -745.0, 1e4, -1e4]), min_size=2, max_size=8
)


def exact(values: Sequence[float], label: int) -> tuple[float, float]:
    """Loss and confidence in 400 decimals, which hold every loss that a float64 does."""
    with localcontext() as context:
        context.prec, context.Emin = 400, -(10**9)
        shifted = [Decimal(value) - Decimal(max(values)) for value in values]
        powers = [value.exp() for value in shifted]
        others = [power for index, power in enumerate(powers) if index != label]
        return float(sum(powers).ln() - shifted[label]), float(shifted[label] - sum(others).ln())


def by_torch(name: str, logits: np.ndarray, label: int) -> float:
    values: torch.Tensor = getattr(torch_module, name)(torch.from_numpy(logits[None]), torch.tensor([label]))
    return values.item()


def by_numpy(name: str, logits: np.ndarray, label: int) -> float:
    values: np.ndarray = getattr(outputs, name)(logits[None], np.array([label]))
    return float(values[0])


Signal = Callable[[str, np.ndarray, int], float]
BOTH = pytest.mark.parametrize("signal", [by_torch, by_numpy])


@BOTH
@given(values=LOGITS | EXTREMES, data=st.data())
@settings(deadline=None, max_examples=150, derandomize=True)
def test_loss_and_confidence_are_exact(signal: Signal, values: list[float], data: st.DataObject) -> None:
    label = data.draw(st.integers(0, len(values) - 1))
    logits = np.array(values, dtype=np.float32)
    expected_loss, expected_confidence = exact(logits.tolist(), label)
    assert signal("loss", logits, label) == pytest.approx(expected_loss, rel=1e-10, abs=1e-300)
    assert signal("confidence", logits, label) == pytest.approx(expected_confidence, rel=1e-12, abs=1e-11)


@BOTH
@given(values=LOGITS, shift=st.integers(-100, 100), random=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=50, derandomize=True)
def test_neither_depends_on_a_shift_or_on_the_order_of_classes(
    signal: Signal, values: list[float], shift: int, random: Any
) -> None:
    logits = np.array(values)
    order = list(range(1, len(values)))
    random.shuffle(order)
    other = logits[[0, *order]] + shift
    for name in ("loss", "confidence"):
        assert signal(name, other, 0) == pytest.approx(signal(name, logits, 0), rel=1e-9, abs=1e-9)


@BOTH
def test_confidence_does_not_go_through_the_softmax(signal: Signal) -> None:
    assert signal("confidence", np.array([120.0, 0.0, 0.0]), 0) == pytest.approx(119.30685, abs=1e-5)


@BOTH
def test_tied_logits_share_the_probability(signal: Signal) -> None:
    logits = np.full(4, 3.0)
    assert signal("loss", logits, 2) == pytest.approx(np.log(4), rel=1e-15)
    assert signal("confidence", logits, 2) == pytest.approx(-np.log(3), rel=1e-15)


def test_summaries_by_numpy_are_those_by_torch() -> None:
    attributions = np.random.default_rng(0).normal(size=(5, 2, 3, 4)).astype(np.float32)
    by_device = summarise(torch.from_numpy(attributions))
    assert list(compute.summarise(attributions)) == list(by_device)
    for name, values in compute.summarise(attributions).items():
        np.testing.assert_allclose(values, by_device[name], rtol=1e-12)


FACTS = {"kind": "image", "mean": 0.5, "std": 0.5}
SHAPE = (1, 4, 4)
OPTIONS: dict[str, Any] = {
    "explain": ["logit", "probability"],
    "explained_class": "predicted",
    "ig_nodes": 6,
    "gradient_shap_samples": 3,
    "gradient_shap_sd": 0.001,
}
FAMILIES = {"gradient": ["ixg", "saliency"], "ig": ["ig"], "gradient_shap": ["gradient_shap"]}


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.LayerNorm(12), nn.Tanh(), nn.Linear(12, 3))
    return layers.eval().requires_grad_(False)


@pytest.fixture
def pool() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (23, *SHAPE)).astype(np.uint8), random.integers(0, 3, 23).astype(np.int32)


def signals_of(
    model: nn.Module, pool: tuple[np.ndarray, np.ndarray], task: SignalsTask, batch: int = 8
) -> dict[str, np.ndarray]:
    asked = TorchModel(model, batch, lambda records: Inputs(records.values, FACTS, SHAPE))
    return model_signals(asked, Records(*pool, FACTS, np.arange(len(pool[1]))), task)


def task(family: str, **options: Any) -> SignalsTask:
    return SignalsTask(family, OPTIONS | {"explainers": FAMILIES[family]} | options, seed=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_are_the_families(family: str, model: nn.Module, pool: tuple[np.ndarray, np.ndarray]) -> None:
    signals = signals_of(model, pool, task(family))
    assert list(signals) == columns(family, task(family).options)
    for name, values in signals.items():
        assert values.shape == (23,), name
        assert values.dtype == (np.int32 if name in ("label", "predicted") else np.float32), name
        assert np.isfinite(values).all(), name


def test_outputs_are_those_of_the_whole_pool_at_once(model: nn.Module, pool: tuple[np.ndarray, np.ndarray]) -> None:
    signals = signals_of(model, pool, task("gradient"))
    logits = model(to_input(pool[0], FACTS)).double().numpy()
    logsumexp = np.log(np.exp(logits).sum(axis=1))
    np.testing.assert_array_equal(signals["label"], pool[1])
    np.testing.assert_array_equal(signals["predicted"], logits.argmax(axis=1))
    np.testing.assert_allclose(signals["loss"], logsumexp - logits[np.arange(23), pool[1]], rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_columns_are_summaries_of_the_attributions_shown(
    family: str, model: nn.Module, pool: tuple[np.ndarray, np.ndarray]
) -> None:
    signals = signals_of(model, pool, task(family, explained_class="true"))
    records = [3, 17, 8]
    for explainer in FAMILIES[family]:
        inputs, labels = to_input(pool[0][records], FACTS), torch.from_numpy(pool[1][records]).long()
        options = OPTIONS | {"explained_class": "true"}
        shown = attribute(model, inputs, labels, records, explainer, options, seed=1)
        for quantity, stem in (("logit", f"{explainer}_true"), ("probability", f"{explainer}_probability_true")):
            for summary, values in summarise(shown[quantity]).items():
                np.testing.assert_allclose(signals[f"{stem}_{summary}"][records], values, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_signal_depends_on_the_batch(family: str, model: nn.Module, pool: tuple[np.ndarray, np.ndarray]) -> None:
    whole = signals_of(model, pool, task(family), batch=100)
    for batch in (1, 7):
        for name, values in signals_of(model, pool, task(family), batch).items():
            np.testing.assert_allclose(values, whole[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_completeness_error_shrinks_with_the_nodes(model: nn.Module, pool: tuple[np.ndarray, np.ndarray]) -> None:
    few, many = (signals_of(model, pool, task("ig", ig_nodes=nodes)) for nodes in (2, 60))
    for name in ("ig_completeness", "ig_probability_completeness"):
        assert np.median(many[name]) < 1e-3 * np.median(few[name])


def test_completeness_error_is_measured_from_the_zero_input() -> None:
    """A quadratic model with 1 node: ∇f(x/2)·x = f(x) − f(0), and no attribution but the exact one leaves no error."""

    class Quadratic(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            total = inputs.flatten(1).square().sum(dim=1) + 5  # f(0) = 5
            return torch.stack([total, torch.zeros_like(total)], dim=1)

    pool = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32), np.zeros(4, dtype=np.int32)
    options = {"explain": ["logit"], "ig_nodes": 1}
    records = Records(*pool, {}, np.arange(4))
    signals = model_signals(TorchModel(Quadratic(), batch=8), records, task("ig", **options))
    np.testing.assert_allclose(signals["ig_completeness"], 0, atol=1e-5)
    np.testing.assert_allclose(signals["ig_l1"], np.square(pool[0]).sum(axis=1), rtol=1e-5)


def test_a_diverged_model_is_one_line_that_names_the_record(pool: tuple[np.ndarray, np.ndarray]) -> None:
    class Diverged(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            logits = inputs.flatten(1)[:, :3] * 1.0
            return logits / (inputs[:, :1, 0, 0] != marked)

    marked = to_input(pool[0][13:14], FACTS)[0, 0, 0, 0]
    with pytest.raises(UserError, match="output for record 13 is not finite: the training diverged"):
        signals_of(Diverged(), pool, task("gradient"))


def test_an_explainer_that_is_asked_for_by_name_is_never_left_out_in_silence(
    pool: tuple[np.ndarray, np.ndarray],
) -> None:
    class Answering:
        def logits(self, records: Records) -> np.ndarray:
            return np.eye(3, dtype=np.float32)[records.labels]

        def save(self, folder: object) -> None: ...

    records = Records(*pool, FACTS, np.arange(len(pool[1])))
    for named, left_out in ((Explainers(), True), (Explainers(methods=("ixg",)), False)):
        asked = SignalsTask("gradient", families(named, "train.py", "script")["gradient"], seed=1)
        if left_out:
            assert list(model_signals(Answering(), records, asked)) == ["label", "predicted", "loss", "confidence"]
        else:
            with pytest.raises(UserError, match="'ixg' explains only torch modules"):
                model_signals(Answering(), records, asked)
