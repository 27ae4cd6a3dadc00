"""`mia-audit plan`: the workflow's own jobs, and one line for a mistake."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mia_audit.cli import main
from mia_audit.commands.before import _metadata, _print
from mia_audit.planning.plan import Plan, read_counts

CONFIG: dict[str, Any] = {
    "audit": "planned",
    "datasets": {"breast_cancer": {"records": 60}},
    "membership": {"models": 5},
    "architectures": {"mlp": {"model": "mlp"}},
    "training": {"batch": 16},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8]}},
    "explainers": {"methods": ["ixg", "ig"]},
    "compute": {"shadows_per_job": 3},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "planned.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def test_jobs_are_those_of_the_workflow_and_nothing_is_written(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config.parent)
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "the-users-own")
    arguments = ["plan", str(config), "--records-per-second", "1000"]
    assert main([*arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["models"] == 10
    found = {rule: plan["jobs"][rule] for rule in ("pool", "membership", "architecture", "train", "signals", "attack")}
    assert found == {"pool": 1, "membership": 1, "architecture": 1, "train": 4, "signals": 4, "attack": 2}
    assert plan["total_hours"] == pytest.approx(sum(plan["hours"].values()))
    # 10 models, 60 records, one fused pass each
    assert plan["hours"]["signals gradient"] * 3600 == pytest.approx(10 * 60 / 1000, abs=0.5)
    assert not (config.parent / "results").exists()


def test_mistakes(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in [
        ([str(tmp_path / "none.yaml")], "none.yaml: no such file"),
        ([str(config), "--records-per-second", "0"], "--records-per-second: a positive number"),
        ([str(config), "--cores", "0"], "--cores: a positive number"),
        ([str(config), "--pool", "faces=1"], "--pool: expected NAME=RECORDS,SHAPE,CLASSES"),
    ]:
        assert main(["plan", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_the_table_of_a_dry_run_is_read() -> None:
    told = "Building DAG of jobs...\nJob stats:\njob      count\n-----  -------\ntrain       12\nall          1\ntotal       13\n\n"
    assert read_counts(told) == {"train": 12}
    assert read_counts("Nothing to be done") == {}


def test_wall_time_divides_what_runs_on_gpus_by_gpus_and_the_rest_by_jobs() -> None:
    plan = Plan(seconds={"train none": 8 * 3600.0, "signals ixg": 4 * 3600.0, "attack": 4 * 3600.0})
    found = _metadata(plan, {}, "", gpu=True, slots=4, gpus=2)
    assert (found["gpu_hours"], found["wall_hours"], found["total_hours"]) == (12, 12 / 2 + 4 / 4, 16)
    assert _metadata(plan, {}, "", gpu=False, slots=4, gpus=2)["wall_hours"] == 16 / 4


def test_a_plan_that_leaves_something_out_says_so_beside_its_total(capsys: pytest.CaptureFixture[str]) -> None:
    for untimed in ([], ["net, which your own code trains"]):
        plan = Plan(seconds={"report": 10.0}, untimed=untimed)
        _print(plan, {}, "", _metadata(plan, {}, "", False, 1, 1), [])
        assert ("of what is counted, report takes longest" in capsys.readouterr().out) == bool(untimed)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "run"])
def test_files_beside_a_config_are_not_imported_as_packages(command: str, config: Path) -> None:
    """A folder from a stranger may have any file in it; only code that `check` lists runs."""
    for package in ("snakemake", "yaml", "torch", "polars", "numpy"):
        (config.parent / f"{package}.py").write_text("open('ran', 'w')\nraise ImportError\n")
    words = ["plan", config.name, "--records-per-second", "9"] if command == "plan" else ["run", config.name, "-n"]
    started = [sys.executable, "-P", "-m", "mia_audit.cli", *words, *(["--cores", "1"] if command == "run" else [])]
    result = subprocess.run(started, cwd=config.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert not (config.parent / "ran").exists()
