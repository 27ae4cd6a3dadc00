"""`mia-audit step-times`: medians and ratios of the times that training writes."""

import json
from pathlib import Path

import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.config.load import check_audit
from mia_audit.config.specs import StepTimesSpec
from mia_audit.training.step_times import StepTimer, write_step_time


def test_medians_and_ratios(tmp_path: Path) -> None:
    times: dict[str, list[float | None]] = {
        "toy-net-none-epsinf": [9.0, 4.0, 5.0, None, 1e6],  # the last one is no longer part of the audit
        "toy-net-dp-sgd-eps3": [100.0, 19.0, 20.0, 21.0],
        "toy-net-dp-sgd-eps30": [80.0],
        "toy-net-mine-eps3": [22.0],
    }
    for setting, values in times.items():
        for shadow, milliseconds in enumerate(values):
            write_step_time(tmp_path / "steps" / setting, shadow, milliseconds)
    keys = ("dataset", "architecture", "mechanism", "registered", "epsilon")
    settings = [
        ("toy", "net", "none", "none", "inf"),
        ("toy", "net", "dp-sgd", "dp-sgd", "30"),
        ("toy", "net", "dp-sgd", "dp-sgd", "3"),
        ("toy", "net", "mine", "fadp", "3"),
        ("toy", "other", "mine", "fadp", "3"),
    ]
    spec = {"settings": [dict(zip(keys, setting, strict=True)) for setting in settings], "models": 4}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    files = {"spec": tmp_path / "spec.json", "times": tmp_path / "steps", "out": tmp_path / "step_times.csv"}
    assert main(["step-times", *(word for name, path in files.items() for word in (f"--{name}", str(path)))]) == 0
    rows = pl.read_csv(files["out"]).rows()
    assert [row[4:] for row in rows] == [
        (3, 5.0, 1.0, 0.0625),
        (1, 80.0, 16.0, 1.0),
        (4, 20.5, 4.1, 1.0),
        (1, 22.0, 4.4, 1.07),
        (0, None, None, None),
    ]


def test_steps_are_timed_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 101.0, 104.0])
    monkeypatch.setattr("mia_audit.training.step_times.time.monotonic", lambda: next(clock))
    seen: list[tuple[int, int]] = []
    timer = StepTimer(lambda records, epoch: seen.append((records, epoch)))
    assert timer.milliseconds is None
    timer.step(8, 1)
    assert timer.milliseconds is None, "the first step has set-up before it"
    timer.step(7, 1)
    timer.step(8, 2)
    assert timer.milliseconds == 2000.0 and seen == [(8, 1), (7, 1), (8, 2)]


def test_the_specification_names_what_every_mechanism_is() -> None:
    audit = check_audit(
        {
            "audit": "x",
            "datasets": {"breast_cancer": {}},
            "architectures": {"mlp": {}},
            "mechanisms": {"none": {}, "mine": {"mechanism": "dp-sgd", "epsilon": [8]}},
            "explainers": {"methods": ["ixg"]},
        },
        "x",
    )
    assert [tuple(setting.model_dump().values()) for setting in StepTimesSpec.of(audit).settings] == [
        ("breast_cancer", "mlp", "none", "none", "inf"),
        ("breast_cancer", "mlp", "mine", "dp-sgd", "8"),
    ]
