"""Commands that the workflow runs: short enough for a person to read and for the system to start, whatever the size of an audit."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.api import SnakemakeApi
from snakemake.settings.types import (
    ConfigSettings,
    DAGSettings,
    OutputSettings,
    Quietness,
    ResourceSettings,
    SchedulingSettings,
)

ROOT = Path(__file__).parents[2]
LONGEST = 4096
CONFIGS = sorted((ROOT / "config").rglob("*.yaml"))
FIRST = {config.parent: config for config in reversed(CONFIGS)}.values()
"""The first config of every folder."""


def commands(config: Path) -> list[str]:
    """Return the commands of all jobs of an audit, by a dry run in this process."""
    with SnakemakeApi(OutputSettings(quiet={Quietness.ALL}, dryrun=True)) as api:
        workflow = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(configfiles=[config]),
            snakefile=ROOT / "Snakefile",
        )
        dag = workflow.dag(DAGSettings(forceall=True))
        dag.execute_workflow(executor="dryrun", scheduling_settings=SchedulingSettings(scheduler="greedy"))
        return [job.shellcmd for job in workflow._workflow.dag.jobs if job.shellcmd]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan in a folder with nothing but the shipped configs; what the workflow does to PATH ends with the test."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])


@pytest.mark.parametrize(
    "config",
    [config if config in FIRST else pytest.param(config, marks=pytest.mark.slow) for config in CONFIGS],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_no_command_of_a_committed_audit_is_long(config: Path, tmp_path: Path) -> None:
    lines = commands(config)
    assert lines and max(map(len, lines)) < LONGEST
    assert not (tmp_path / "results").exists(), "a dry run writes no specification"


@pytest.mark.parametrize(
    ("settings", "blocks"),
    [
        pytest.param(200, 1, id="two-hundred-settings", marks=pytest.mark.slow),
        pytest.param(1, 400, id="four-hundred-blocks"),
    ],
)
def test_no_command_of_a_large_audit_is_long(settings: int, blocks: int, tmp_path: Path) -> None:
    """Most of the many settings are imported: what depends on their number is the same, and there are fewer jobs to plan."""
    epsilons = range(1, min(settings, 10) + 1)
    config: dict[str, Any] = {
        "audit": "large",
        "datasets": {"breast_cancer": {}},
        "membership": {"models": max(4, blocks)},
        "compute": {"shadows_per_job": max(4, blocks) // blocks, "blocks_explained_per_job": blocks},
        "architectures": {"mlp": {}},
        "mechanisms": {"dp-sgd": {"epsilon": list(epsilons)}},
        "explainers": {"methods": ["ixg"]},
        "imported": {f"theirs{number}": {"signals": "theirs.parquet"} for number in range(settings - len(epsilons))},
    }
    (tmp_path / "theirs.parquet").touch()
    (tmp_path / "large.yaml").write_text(yaml.safe_dump(config))
    lines = commands(tmp_path / "large.yaml")
    assert sum(command.startswith("mia-audit evaluate ") for command in lines) == settings
    assert max(map(len, lines)) < LONGEST
