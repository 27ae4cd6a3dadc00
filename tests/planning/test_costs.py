"""Costs: a line through timed runs, and passes that are counted, not believed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mia_audit.models.architecture import describe
from mia_audit.planning.attacks import extrapolated
from mia_audit.planning.costs import FORWARD, PLAIN_STEP, PRIVATE_STEP, Costs, count_passes, stand_in_for
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training

OPTIONS: dict[str, Any] = {"explain": ["logit"], "explained_class": "predicted"}


@pytest.fixture(scope="module")
def mlp() -> dict[str, Any]:
    return describe("net", "mlp", {"width": 8, "depth": 1}, (5,), 3)


def seconds(cost: Callable[[int], float], most: int, least: int = 1, empty: bool = False) -> tuple[float, list[int]]:
    """Return what is told of work with these costs, and the numbers of records that were timed."""
    now, asked = 0.0, list[int]()

    def work(count: int) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            now += cost(count)

        asked.append(count)
        return run

    return extrapolated(work, most, least, lambda: now, empty), asked


@given(fixed=st.floats(0, 1), each=st.floats(1e-6, 1), most=st.integers(1, 500))
def test_a_line_is_recovered(fixed: float, each: float, most: int) -> None:
    told, asked = seconds(lambda count: fixed + each * count, most)
    assert max(asked) <= most
    if len(asked) > 1:
        assert told == pytest.approx(fixed + each * most, rel=1e-3, abs=1e-6)
    else:
        assert told == pytest.approx((fixed + each) * most)


def test_a_long_run_is_not_prolonged() -> None:
    assert seconds(lambda count: 5 + 10.0 * count, 1000, 4) == (pytest.approx(45 * 250), [4])
    assert seconds(lambda count: 5 + 10.0 * count, 1000, 4, empty=True) == (pytest.approx(10_005), [4, 0])


def test_a_rate_gives_costs_by_passes(mlp: dict[str, Any]) -> None:
    costs = Costs(4, rate=50)
    assert costs.step(mlp, Mechanism(mechanism="none"), Training(), 3) == pytest.approx(3 * PLAIN_STEP / 50)
    assert costs.step(mlp, Mechanism(mechanism="dp-sgd"), Training(), 3) == pytest.approx(3 * PRIVATE_STEP / 50)
    assert costs.forward(mlp) == FORWARD / 50
    shap = OPTIONS | {"explainers": ["gradient_shap"], "gradient_shap_samples": 5, "gradient_shap_sd": 0.001}
    assert costs.signals(mlp, "gradient_shap", shap, 9) >= (5 + FORWARD) / 50


def test_the_passes_of_probes_are_counted(mlp: dict[str, Any]) -> None:
    """A curve takes a pass for each of its heights, infidelity one for each removal and one more, after a second explanation."""
    costs, rate = Costs(4, rate=0.01), 0.01
    plain = OPTIONS | {"explainers": ["ixg"]}
    measuring = {"curve_steps": 10, "perturbations": 6, "removed_share": 0.1}
    probes = {"probed": ["ixg"], "probes": ["deletion", "infidelity"], "measuring": measuring}
    more = costs.signals(mlp, "gradient", plain | probes, 9) - costs.signals(mlp, "gradient", plain, 9)
    again = 1 + FORWARD  # the class explained, then its explanation
    assert more * rate == pytest.approx(again + (11 + 7) * FORWARD, abs=0.01)


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
def test_a_step_is_timed_once(mlp: dict[str, Any], mechanism: str) -> None:
    costs, training = Costs(4), Training(batch=4)
    private = Mechanism(mechanism=mechanism, delta=1e-3)
    first = costs.step(mlp, private, training, 4)
    assert first > 0 and costs.step(mlp, private, training, 4) is first


def test_a_step_is_timed_in_the_precision_of_training(mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    types = []
    plain = torch.nn.functional.cross_entropy

    def cross_entropy(logits: Tensor, *rest: Any, **named: Any) -> Tensor:
        types.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return plain(logits, *rest, **named)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", cross_entropy)
    costs = Costs(4)
    for precision in (None, "bf16", "float32"):
        types.clear()
        costs.step(mlp, Mechanism(mechanism="none"), Training(batch=4, precision=precision), 4)
        assert set(types) == {torch.bfloat16 if precision == "bf16" else torch.float32}


def test_batch_normalisation_on_maps_of_one_pixel_is_timed() -> None:
    """A batch of one record has no variance there."""
    resnet = describe("net", "resnet18", {}, (3, 32, 32), 2)
    assert Costs(2).step(resnet, Mechanism(mechanism="none"), Training(batch=2), 1) > 0


def test_passes_are_counted_forward_and_backward() -> None:
    architecture = {"input_shape": (3, 8, 8), "classes": 2}

    def run(model: nn.Module, inputs: Tensor, labels: np.ndarray) -> None:
        model(inputs)
        for _ in range(3):
            model(inputs.requires_grad_()).sum().backward()

    assert count_passes(stand_in_for(architecture, run), architecture, run) == (4, 3)


def test_explanations_fitted_to_records_and_measures_cost_something(mlp: dict[str, Any]) -> None:
    fitted = {"explain": ["probability"], "explained_class": "predicted", "explainers": ["local_linear"]}
    costs = Costs(4)
    assert costs.signals(mlp, "local_linear", fitted | {"local_kernel": "stable"}, 12) > 0
    measuring = {"curve_steps": 4, "perturbations": 3, "radius": 0.02}
    spec = {"explainers": ["ixg"], "explaining": OPTIONS, "measures": ["cosine", "deletion"], "measuring": measuring}
    assert costs.measures(mlp, spec, 8) > 0
