"""A tiny audit, run once by the real Snakemake, that the workflow's tests look at and copy."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]

TINY: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"records": 60, "public": 40}},
    "membership": {"models": 5},
    "architectures": {
        "vit": {
            "model": "vision_transformer",
            "parameters": {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2},
            "pretrained": "public",
            "pretraining": {"epochs": 2, "batch": 20},
        }
    },
    "training": {"epochs": 2, "batch": 10},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8]}},
    "explainers": {"methods": ["ixg", "ig"], "ig_nodes": 2},
    "attacks": {"methods": ["threshold", "loss-lira", "l1-lrt"], "variances": ["pooled"]},
    "evaluation": {"fprs": [0.001, 0.1]},
    "report": {"exposed": 2},
    "compute": {"shadows_per_job": 3, "blocks_explained_per_job": 2, "batch": 32},
}


class Workflow:
    """The workflow in a folder of its own."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.results = folder / "results" / "tiny"
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(config))

    def command(self, *options: str) -> list[str]:
        profile = ROOT / "workflow" / "profiles" / "default"
        fixed = [
            "--snakefile",
            str(ROOT / "Snakefile"),
            "--configfile",
            "tiny.yaml",
            "--workflow-profile",
            str(profile),
        ]
        return [sys.executable, "-m", "snakemake", *fixed, "--cores", "2", *options]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*options),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )

    def planned(self) -> dict[str, int]:
        """Count the jobs per rule that a dry run plans."""
        result = self.run("--dry-run")
        assert result.returncode == 0, result.stdout
        assert "Exception" not in result.stdout
        lines = iter(result.stdout.splitlines())
        if "Job stats:" not in result.stdout:
            assert "Nothing to be done" in result.stdout
            return {}
        for line in lines:
            if line.startswith("-----"):
                break
        counts = {}
        for line in lines:
            if not line.strip():
                break
            rule, count = line.split()
            counts[rule] = int(count)
        return counts


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A fresh copy of the tiny config."""
    copied: dict[str, Any] = yaml.safe_load(yaml.safe_dump(TINY))
    return copied


@pytest.fixture
def workflow(tmp_path: Path, tiny: dict[str, Any]) -> Workflow:
    """The workflow in an empty folder."""
    return Workflow(tmp_path, tiny)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The tiny audit, run to its end: to look at, not to change."""
    done = Workflow(tmp_path_factory.mktemp("finished"), TINY)
    result = done.run()
    assert result.returncode == 0, result.stdout
    return done


@pytest.fixture
def copy_of_finished(finished: Workflow, tmp_path: Path) -> Callable[[dict[str, Any]], Workflow]:
    """Make a copy of the finished audit that a test may change, with another config."""

    def make(config: dict[str, Any]) -> Workflow:
        shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
        return Workflow(tmp_path / "copy", config)

    return make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all tests that look at the finished audit on one worker, so that it is run once."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("workflow"))
