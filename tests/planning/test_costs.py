"""Costs: a line through timed points, and passes that are counted, not believed."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.models import describe
from mia_audit.planning import explanations, timing
from mia_audit.planning.costs import FORWARD, PER_MAP, PLAIN_STEP, PRIVATE_STEP, RateCosts
from mia_audit.planning.counting import Rates
from mia_audit.planning.explanations import MadeUp
from mia_audit.planning.linear import fitted
from mia_audit.planning.sizes import Size
from mia_audit.planning.timing import FEWER, Measured
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.privacy.per_record import LEAST
from mia_audit.training.section import Training

OPTIONS: dict[str, Any] = {"explain": ["logit"], "explained_class": "predicted"}


TICK = 2**-7
"""Seconds between two looks at the clock, however long ago the last one was: exact, and brief."""


@pytest.fixture(scope="module")
def mlp() -> dict[str, Any]:
    return describe("net", "mlp", {"width": 8, "depth": 1}, (5,), 3)


@given(fixed=st.floats(0, 1), each=st.floats(1e-6, 1), most=st.integers(1, 500))
def test_a_line_is_recovered(fixed: float, each: float, most: int) -> None:
    asked: list[int] = []

    def seconds(count: int) -> float:
        asked.append(count)
        return fixed + each * count

    line = fitted(seconds, most)
    assert max(asked) <= most
    assert line(max(asked)) == pytest.approx(seconds(max(asked)))
    if len(set(asked)) > 1:
        assert (line.fixed, line.each) == (pytest.approx(fixed, abs=1e-6), pytest.approx(each, rel=1e-6, abs=1e-9))


@pytest.mark.parametrize(
    ("known", "asked", "fixed"),
    [({}, [1, 2], 5), ({"least": 3}, [3, 6], 5), ({"few": 1}, [1], 0), ({"few": 4, "empty": True}, [4, 0], 5)],
)
def test_a_long_run_is_not_prolonged(known: dict[str, Any], asked: list[int], fixed: float) -> None:
    """Seconds are 5 and 10 a record, beside which no set-up of a plain run counts; where few records are known to be as good as
    many, the 5 are taken for theirs."""
    counts: list[int] = []
    line = fitted(lambda count: counts.append(count) or 5 + 10.0 * count, 1000, **known)  # type: ignore[func-returns-value]
    assert counts == asked
    assert (line.fixed, line.each) == (fixed, 10 if fixed else 15)


@pytest.mark.parametrize("known", [{"few": 1}, {"few": 8, "empty": True}])
def test_set_up_that_happens_once_is_no_part_of_a_run(known: dict[str, Any]) -> None:
    """A tenth of a second of set-up, without which no first run would be long."""
    set_up = iter([0.1])
    line = fitted(lambda count: 0.04 * count + next(set_up, 0.0), 1000, **known)
    assert (line.fixed, line.each) == (pytest.approx(0, abs=1e-12), pytest.approx(0.04))


def test_a_rate_gives_costs_by_passes(mlp: dict[str, Any]) -> None:
    costs = RateCosts(records_per_second=50)
    training = Training()
    assert costs.step(mlp, Mechanism(mechanism="none"), training).each == PLAIN_STEP / 50
    assert costs.step(mlp, Mechanism(mechanism="dp-sgd"), training).each == PRIVATE_STEP / 50
    assert costs.forward(mlp) == FORWARD / 50
    assert costs.signals(mlp, "gradient", OPTIONS | {"explainers": ["ixg", "saliency"]}, 9) == 1 / 50
    # every node is a pass, and what the completeness error compares with are two more
    ig = costs.signals(mlp, "ig", OPTIONS | {"explainers": ["ig"], "ig_nodes": 7}, 9)
    assert ig == pytest.approx((7 + 2 * FORWARD) / 50)
    shap = OPTIONS | {"explainers": ["gradient_shap"], "gradient_shap_samples": 5, "gradient_shap_sd": 0.001}
    assert costs.signals(mlp, "gradient_shap", shap, 9) == pytest.approx((5 + FORWARD) / 50)


def test_every_quantity_is_a_backward_pass_of_its_own(mlp: dict[str, Any]) -> None:
    costs, both = RateCosts(records_per_second=50), OPTIONS | {"explain": ["logit", "probability"]}
    assert costs.signals(mlp, "gradient", both | {"explainers": ["ixg"]}, 9) == pytest.approx((2 - FORWARD) / 50)


SPEC: dict[str, Any] = {
    "explainers": ["ixg"],
    "explaining": OPTIONS,
    "measures": ["cosine", "deletion", "sensitivity"],
    "measuring": {"curve_steps": 4, "perturbations": 3, "radius": 0.02},
}


def test_a_step_is_timed_in_the_precision_of_training(mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    types = []
    plain = torch.nn.functional.cross_entropy

    def cross_entropy(logits: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        types.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32)
        return plain(logits, *rest, **named)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", cross_entropy)
    costs = Measured(4, "cpu")
    for precision in (None, "bf16", "float32"):
        types.clear()
        costs.step(mlp, Mechanism(mechanism="none"), Training(batch=4, precision=precision))
        assert set(types) == {torch.bfloat16 if precision == "bf16" else torch.float32}


@pytest.mark.parametrize(("seconds", "records"), [(0.04, LEAST), (0.06, FEWER)])
def test_a_private_step_of_a_slow_model_is_timed_on_fewer_records(
    mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch, seconds: float, records: int
) -> None:
    passes: list[int] = []
    monkeypatch.setattr(Measured, "_passes", lambda *_: Rates(seconds, seconds))
    fit = timing.fitted
    monkeypatch.setattr(
        timing, "fitted", lambda run, most, few, *rest: passes.append(few) or fit(run, most, few, *rest)
    )
    costs = Measured(32, "cpu")
    costs.step(mlp, Mechanism(mechanism="dp-sgd", delta=1e-3), Training(batch=32))
    costs.step(mlp, Mechanism(mechanism="none"), Training(batch=32))
    assert passes == [records, 1]


def test_measures_that_ask_the_model_again_are_counted(mlp: dict[str, Any]) -> None:
    # forward alone for the class and five points of the curve; gradients for the explanation, and for sensitivity one and
    # three changed records
    expected = 10 * (((1 + 5) * FORWARD + 1 + 1 + 3) / 50 + PER_MAP)
    assert RateCosts(50).measures(mlp, SPEC, 10) == pytest.approx(expected)


def test_explanations_fitted_to_records_and_measures_are_timed(
    mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count()
    monkeypatch.setattr(Measured, "_clock", lambda self: TICK * next(ticks))
    options = {"explain": ["probability"], "explained_class": "predicted", "explainers": ["local_linear"]}
    options |= {"local_kernel": "stable"}
    costs = Measured(batch=4, device="cpu")
    for members, timed in ((12, True), (12, False), (20, True)):
        before = next(ticks)
        # for a run of four records four ticks, of which half are the forward pass for the values; one for the fits
        assert costs.signals(mlp, "local_linear", options, members) == TICK * (4 / 2 + 1) / 4
        assert (next(ticks) > before + 1) == timed
    passes = costs.counted.measures(mlp, SPEC)
    assert costs.measures(mlp, SPEC, 8) == pytest.approx(
        TICK * (8 * (passes.forward + passes.graph + passes.backward) / 2 + 1)
    )


def test_a_study_of_private_explanations_is_timed_by_its_own_code() -> None:
    study = PrivateExplanations(black_boxes=("forest",), queries=20, epsilons=(1.0,), steps=5)
    timed = MadeUp(study, Size(200, 0, (4,), 3))
    assert timed.explained.values.shape == (200, 3) and set(timed.labels.tolist()) == {0, 1, 2}
    assert min(timed.black_box("forest"), timed.answers(False), timed.answers(True), timed.attacked("1", 2)) > 0
    assert timed.attacked("inf", 2) > 0


@pytest.mark.parametrize(("whole", "least", "asked"), [(60, 3, [3, 6]), (5, 3, [3, 5]), (2, 3, [2])])
def test_a_study_is_timed_on_multiples_of_the_fewest_queries(
    whole: int, least: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    monkeypatch.setattr(explanations, "processor_seconds", lambda run: run() or 2.0 + counts[-1])
    assert explanations._seconds(counts.append, whole, least) == pytest.approx(2.0 + whole)
    assert counts == asked


@pytest.mark.parametrize(("seconds", "told"), [(0.08, 0.08), (1.0, 0.75)])
def test_the_kernel_time_of_a_long_run_is_not_counted(
    seconds: float, told: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of pages of memory, which are zeroed when a process first uses them."""
    processor, kernel = iter([0.0, seconds]), iter([SimpleNamespace(system=0.0), SimpleNamespace(system=0.25)])
    monkeypatch.setattr(Measured, "_clock", lambda self: next(processor))
    monkeypatch.setattr(timing.os, "times", lambda: next(kernel))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert Measured(4, "cpu")._seconds(lambda: None) == told


def test_the_same_is_timed_once_and_costs_something(mlp: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(Measured, "_clock", lambda self: TICK * next(ticks))
    costs = Measured(batch=4, device="cpu")
    training = Training(batch=4)
    first = costs.step(mlp, Mechanism(mechanism="dp-sgd", delta=1e-3), training)
    used = next(ticks)
    assert costs.step(mlp, Mechanism(mechanism="dp-sgd", delta=1e-3), training) is first
    assert next(ticks) == used + 1
    assert first(4) == 2 * TICK  # one for the gradients, however many records, and one for the optimizer
    assert costs.forward(mlp) == TICK / 2
    # a pass, and what is beside it
    assert costs.signals(mlp, "gradient", OPTIONS | {"explainers": ["ixg"]}, 9) == TICK * (1 + 1 / 4)
    assert costs.calibration(Mechanism(mechanism="dp-sgd", accountant="rdp", delta=1e-3), training, 4, 8.0) == TICK


@pytest.mark.parametrize("importance", ["public", "past"])
def test_noise_by_channel_is_timed(importance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(Measured, "_clock", lambda self: TICK * next(ticks))
    small = {"width": 0.25, "stages": 1, "stem_stride": 1, "added": 8}
    net = describe("net", "mobilenet_groupnorm", small, (1, 8, 8), 3)
    fadp = Mechanism(mechanism="fadp", clipping="flat", accountant="rdp", delta=1e-3, importance=importance)
    costs = Measured(batch=4, device="cpu")
    assert costs.step(net, fadp, Training(batch=4))(4) == 2 * TICK
    assert costs.calibration(fadp, Training(batch=4), 4, 8.0) == TICK


def test_activations_are_what_the_layers_keep(mlp: dict[str, Any]) -> None:
    # Linear keeps its input (5), LayerNorm its input (8), mean and deviation (1 + 1), GELU its input (8), the head its input (8)
    assert mlp["activation_bytes"] == 4 * (5 + 8 + 2 + 8 + 8)


def test_what_a_model_holds_once_is_no_activation_of_a_record() -> None:
    few, many = (
        describe("maps", "locally-linear-maps", {"maps": 2, "projection": 3}, (features,), 2)["activation_bytes"]
        for features in (10, 1000)
    )
    assert few == many < 4 * 2 * 3 * 10  # the projections are 2 × 3 × 1000 numbers


def test_steps_that_protect_persons_are_timed(mlp: dict[str, Any]) -> None:
    """They need to know whose the records are, and so does the calibration of their noise."""
    costs, training = Measured(8, "cpu"), Training(epochs=1, batch=8)
    persons = Mechanism(mechanism="dp-sgd", unit="person", accountant="rdp")
    assert costs.step(mlp, persons, training)(8) > 0
    assert costs.calibration(persons, training, 40, 8.0) > 0
