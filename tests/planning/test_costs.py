"""Costs: a line through timed points, and passes that are counted, not believed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mia_audit.config.schema import Mechanism, Training
from mia_audit.models import describe
from mia_audit.planning.costs import FORWARD, PLAIN_STEP, PRIVATE_STEP, Given, Measured, activation_bytes, fitted

OPTIONS: dict[str, Any] = {"explain": ["logit"], "explained_class": "predicted"}


@pytest.fixture(scope="module")
def mlp() -> dict[str, Any]:
    return describe("net", "mlp", {"width": 8, "depth": 1}, (5,), 3)


@given(fixed=st.floats(0, 1), each=st.floats(1e-6, 1), most=st.integers(1, 500))
def test_a_line_is_found_again(fixed: float, each: float, most: int) -> None:
    asked: list[int] = []

    def seconds(count: int) -> float:
        asked.append(count)
        return fixed + each * count

    found = fitted(seconds, most)
    assert max(asked) <= most
    assert found(max(asked)) == pytest.approx(seconds(max(asked)))
    if len(set(asked)) > 1:
        assert (found.fixed, found.each) == (pytest.approx(fixed, abs=1e-6), pytest.approx(each, rel=1e-6, abs=1e-9))


def test_a_long_run_is_not_made_longer() -> None:
    asked: list[int] = []
    fitted(lambda count: asked.append(count) or 10.0 * count, 1000)  # type: ignore[func-returns-value]
    assert max(asked) == 4


def test_a_rate_gives_costs_by_passes(mlp: dict[str, Any]) -> None:
    costs = Given(records_per_second=50)
    training = Training()
    assert costs.step(mlp, Mechanism(mechanism="none"), training).each == PLAIN_STEP / 50
    assert costs.step(mlp, Mechanism(mechanism="dp-sgd"), training).each == PRIVATE_STEP / 50
    assert costs.forward(mlp) == FORWARD / 50
    assert costs.signals(mlp, "gradient", OPTIONS | {"explainers": ["ixg", "saliency"]}) == 1 / 50
    # every node is a pass, and what the completeness error compares with are two more
    ig = costs.signals(mlp, "ig", OPTIONS | {"explainers": ["ig"], "ig_nodes": 7})
    assert ig == pytest.approx((7 + 2) / 50)
    shap = OPTIONS | {"explainers": ["gradient_shap"], "gradient_shap_samples": 5, "gradient_shap_sd": 0.001}
    assert costs.signals(mlp, "gradient_shap", shap) == pytest.approx((5 + 1) / 50)


def test_the_same_is_timed_once_and_costs_something(mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr(Measured, "_clock", lambda self: float(next(ticks)))
    costs = Measured(batch=4, device="cpu")
    training = Training(batch=4)
    first = costs.step(mlp, Mechanism(mechanism="dp-sgd"), training)
    used = next(ticks)
    assert costs.step(mlp, Mechanism(mechanism="dp-sgd"), training) is first
    assert next(ticks) == used + 1
    assert first(4) == 1.0  # one tick of the clock for a run, however many records
    assert costs.forward(mlp) == costs.signals(mlp, "gradient", OPTIONS | {"explainers": ["ixg"]}) == 1 / 4
    assert costs.calibration(Mechanism(mechanism="dp-sgd", accountant="rdp", delta=1e-3), training, 40, 8.0) == 1.0


def test_activations_are_what_the_layers_keep(mlp: dict[str, Any]) -> None:
    # Linear keeps its input (5), LayerNorm its input (8), mean and deviation (1 + 1), GELU its input (8), the head its input (8)
    assert activation_bytes(mlp) == 4 * (5 + 8 + 2 + 8 + 8)
