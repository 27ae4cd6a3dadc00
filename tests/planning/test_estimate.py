"""The arithmetic of a plan, from fixed costs."""

from collections.abc import Mapping
from typing import Any

import pytest

from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.learners.naming import BUILT_IN
from mia_audit.planning import plan as estimating
from mia_audit.planning.costs import Costs
from mia_audit.planning.plan import PER_SETTING, SHOWN_BYTES, Plan, advice, estimate
from mia_audit.planning.requests import PROCESS_BYTES
from mia_audit.planning.sizes import Size
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"records": 1000, "public": 100}},
    "membership": {"models": 10},
    "architectures": {"mlp": {"pretrained": "public", "pretraining": {"epochs": 4, "batch": 30}}},
    "training": {"epochs": 3, "batch": 64},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2], "training": {"epochs": 2, "batch": 100}}},
    "explainers": {"methods": ["ixg", "ig"]},
    "attacks": {"methods": ["threshold", "l1-lrt"], "likelihoods": ["pooled"]},
    "compute": {"shadows_per_job": 4, "micro_batch": 128},
}
METADATA = {
    "parameters": 5000,
    "stored_bytes": 20_000,
    "activation_bytes": 4000,
    "input_shape": [64],
    "classes": 10,
    "model": "mlp",
    "arguments": {},
    "learner": BUILT_IN,
}


@pytest.fixture(autouse=True)
def constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of half the speed, and a quarter of a second per attack."""
    monkeypatch.setattr(estimating, "pace", lambda: 2.0)
    attacks = lambda every, fprs: {"attack": sum(0.25 * len(one.runs) for one in every), "evaluate": 1.0}  # noqa: E731
    monkeypatch.setattr(estimating, "attack_seconds", attacks)


class FixedCosts(Costs):
    """Costs that are easy to add up."""

    def __init__(self) -> None:
        super().__init__(128)

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training, records: int) -> float:
        return 0.1 + records * (0.001 if mechanism.mechanism == "none" else 0.002)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        assert records == 500 and epsilon in (8, 2)
        return 7.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return 0.0005

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        assert members == 500
        return {"gradient": 0.003, "ig": 0.05, "local_linear": 0.02}[family]

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        assert (spec["explainers"], records) == (("ixg", "ig"), 32)
        return 0.4


FIXED = FixedCosts()


def planned(
    changes: Mapping[str, Any] = {}, costs: Costs | None = FIXED, metadata: Mapping[str, Any] = METADATA
) -> Plan:
    """Estimate the audit with other sections, costs or a model that is described by other numbers."""
    sizes = {"digits": Size(1000, 100, (1, 8, 8), 10)}
    return estimate(parse(Audit, CONFIG | changes, "tiny.yaml"), sizes, {("digits", "mlp"): metadata}, costs, {})


@pytest.fixture
def plan() -> Plan:
    return planned()


def test_the_start_of_jobs_counts_for_the_stages_of_their_rule() -> None:
    plan = Plan(seconds={"train none": 30.0, "train dp-sgd": 10.0, "attack": 5.0})
    plan.spread("train", 8.0)
    plan.spread("pool", 1.0)
    assert plan.seconds == {"train none": 36.0, "train dp-sgd": 12.0, "attack": 5.0, "start-up": 1.0}


def test_every_model_step_and_record_is_counted(plan: Plan) -> None:
    assert plan.models == 3 * 10
    seconds = plan.seconds
    # 100 public records in 4 batches of 30, 4 times
    assert seconds["pretrain"] == pytest.approx(16 * (0.1 + 30 * 0.001))
    # 500 records in 8 batches of about 62, 3 times; then all 1000 are classified
    assert seconds["train none"] == pytest.approx(10 * (24 * (0.1 + 62 * 0.001) + 1000 * 0.0005))
    # two budgets; 5 expected batches, twice; the noise is calibrated once in each of three jobs
    assert seconds["train dp-sgd"] == pytest.approx(2 * (10 * (10 * 0.1 + 1000 * 0.002 + 1000 * 0.0005) + 3 * 7))
    assert seconds["signals gradient"] == pytest.approx(3 * 10 * 1000 * 0.003)
    assert seconds["signals ig"] == pytest.approx(3 * 10 * 1000 * 0.05)
    # 32 records of every model are explained once more, and measured
    assert seconds["explanation_metrics"] == pytest.approx(3 * 10 * 0.4)
    assert plan.dominant == "signals ig"
    assert plan.total == sum(seconds.values())


def test_explanations_fitted_to_training_records_count_their_labels() -> None:
    explainers = {"methods": ["ixg", "local_linear", "private_local:1"], "explain": ["probability"]}
    costs = type("Two", (FixedCosts,), {"measures": lambda *_: 0.0})()
    plan = planned({"explainers": explainers}, costs)
    # both explainers are one family; a model labels its 500 records once
    assert plan.seconds["signals local_linear"] == pytest.approx(30 * (1000 * 0.02 + 500 * 0.0005))


def test_what_is_not_counted_is_named() -> None:
    study = {"black_boxes": ["forest", "labels"], "attacked": ["inf", 1]}
    costs = type("Broken", (FixedCosts,), {"step": lambda *_: 1.0, "signals": lambda *_: 1 / 0})()
    plan = planned({"private_explanations": {"digits": study}}, costs)
    assert [what.partition(" (")[0] for what in plan.untimed] == [
        "the rest of mlp under none",
        "the rest of mlp under dp-sgd",
        "the study of private explanations of digits",
    ]
    assert "ZeroDivisionError" in plan.untimed[0]


def test_seconds_on_a_gpu_are_those_of_models(plan: Plan) -> None:
    rest = sum(plan.seconds[stage] for stage in ("attack", "evaluate", "report", "start-up"))
    assert plan.on_gpu == pytest.approx(plan.total - rest)


def test_nothing_is_timed_without_costs() -> None:
    plan = planned(costs=None)
    assert not plan.seconds and plan.models == 30 and plan.memory["train"] > 0


def test_disk_and_memory(plan: Plan) -> None:
    assert plan.disk["pools"] == 1100 * 64
    assert plan.disk["weights"] == (30 + 1) * 4 * 5000
    columns = 4 + 3 * 4 + 1 + 3  # outputs, three explainers' summaries, ig's completeness; shadow, record and member
    assert plan.disk["signals"] == 2 * 4 * columns * 3 * 10 * 1000
    signals = 2 + 3 * 4  # what the threshold attack reads, and has a null control of none
    runs = plan.disk["scores"] / (5 * 3 * 10 * 1000)
    assert runs == int(runs) and runs >= signals
    assert plan.seconds["attack"] == 3 * 0.25 * runs
    assert plan.seconds["report"] == pytest.approx(2 * 3 * PER_SETTING)
    gradients = 128 * 20_000
    assert plan.memory["train"] == PROCESS_BYTES + 4 * 20_000 + 3 * gradients + 100 * 4000
    assert plan.memory["signals"] == PROCESS_BYTES + 20_000 + 128 * 4000


def test_a_mechanism_with_fewer_models_costs_less() -> None:
    fewer = CONFIG["mechanisms"] | {"dp-sgd": CONFIG["mechanisms"]["dp-sgd"] | {"models": 4}}
    plan = planned({"mechanisms": fewer})
    assert plan.models == 10 + 4 + 4
    # the noise is calibrated in one job for each budget
    assert plan.seconds["train dp-sgd"] == pytest.approx(2 * (4 * (10 * 0.1 + 1000 * 0.002 + 1000 * 0.0005) + 7))


def test_imported_signals_cost_no_training() -> None:
    audit = parse(Audit, {"audit": "theirs", "imported": {"them": {"signals": "s.parquet"}}}, "theirs.yaml")
    plan = estimate(audit, {}, {}, FixedCosts(), {"attack": 1})
    assert (
        plan.models == 0
        and plan.disk == {"figures and report": SHOWN_BYTES}
        and set(plan.seconds) == {"report", "start-up"}
    )


def test_blocks_too_small_to_be_worth_their_start_are_named_with_the_size_that_mends_it(plan: Plan) -> None:
    audit = parse(Audit, CONFIG | {"membership": {"models": 40}, "compute": {"shadows_per_job": 1}}, "tiny.yaml")
    work = Plan(seconds={"train none": 90.0, "train dp-sgd": 10.0, "signals gradient": 10_000.0})
    (sentence,) = advice(work, audit, {"train": 40, "signals": 40})  # 5 s to start, 2.5 s of work
    assert "67% of a train job" in sentence and "compute.shadows_per_job: 18 makes" in sentence
    (sentence,) = advice(Plan(seconds={"train none": 1.0}), audit, {"train": 40})
    assert "shadows_per_job: 40 is the largest" in sentence
    assert list(advice(Plan(seconds={"train none": 2000.0}), audit, {"train": 40})) == []


def test_models_that_somebody_else_trains_are_counted_and_not_timed() -> None:
    forest = {"forest": {"model": "sklearn.ensemble:RandomForestClassifier"}}
    audit = parse(Audit, CONFIG | {"architectures": forest, "mechanisms": {"none": {}}, "explainers": {}}, "tiny.yaml")
    sizes = {"digits": Size(1000, 100, (64,), 10)}
    plan = estimate(audit, sizes, {}, FixedCosts(), {"train": 3})
    assert (plan.models, plan.untimed) == (10, ["forest, which your own code trains (time one training, and multiply)"])
    assert set(plan.seconds) == {"attack", "evaluate", "report", "start-up"}


def test_buffers_that_are_stored_with_every_model_are_planned(plan: Plan) -> None:
    """Locally linear maps keep their random projections with their weights: 30 maps of 300 × 64 numbers."""
    from mia_audit.models.architecture import describe

    projected = describe("maps", "locally-linear-maps", {"projection": 30}, (1, 8, 8), 10)
    assert projected["stored_bytes"] == 4 * (projected["parameters"] + 30 * 30 * 64)
    buffers = 1_000_000
    more = planned(metadata=METADATA | {"stored_bytes": METADATA["stored_bytes"] + buffers})
    assert more.disk["weights"] - plan.disk["weights"] == (30 + 1) * buffers
    assert more.memory["train"] - plan.memory["train"] == buffers


def test_temporary_weights_are_those_of_a_setting_at_work_and_those_that_are_kept() -> None:
    changes = {"compute": CONFIG["compute"] | {"weights": "temporary"}, "explanation_metrics": {"records": 0}}
    disk = planned(changes).disk
    assert disk["weights"] == 20_000 * (1 + 3), "the public start, and a model of every setting"
    assert disk["weights of a setting until its signals are merged"] == 20_000 * 10
