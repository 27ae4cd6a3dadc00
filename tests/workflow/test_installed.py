"""The wheel, installed where there is no checkout: what it holds, and the tiny audit in a folder of the user's."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from mia_audit.runtime import warm

ROOT = Path(__file__).parents[2]
PARTS = ("src", "workflow", "config", "pyproject.toml", "README.md", "LICENSE")
"""What a wheel is built from."""

MODULE = """
import mia_audit


configfile: "tiny.yaml"


module mia:
    snakefile:
        mia_audit.SNAKEFILE
    config:
        config


use rule * from mia


onstart:
    mia.onstart()
"""
"""A user's Snakefile that uses the workflow as a module."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installed")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy, so that no build is left in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the wheel into an empty folder that comes first on the paths."""
    target = tmp_path_factory.mktemp("target")
    _pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    programs = f"{target / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": programs, "PYTHONPATH": str(target), warm.ADDRESS: ""}


def _pip(*words: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)


def run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a command in a folder, and return what it printed."""
    found = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
    return found.stdout


def test_the_wheel_holds_the_whole_workflow_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entries = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    wanted = [path.relative_to(ROOT) for path in (ROOT / "workflow").rglob("*") if path.is_file()]
    assert len(wanted) > 15
    missing = [path for path in wanted if f"mia_audit/{path}" not in entries]
    assert missing == []
    assert entries["mia_audit/workflow/profiles/slurm/bin/sacct"] & 0o100
    assert {"mia_audit/config/schema.json", "mia_audit/report/page/templates/report.html.j2"} <= set(entries)
    assert any(name.endswith("licenses/LICENSE") for name in entries)
    packages = {name.partition("/")[0].partition("-")[0] for name in entries}
    assert packages == {"mia_audit", "snakemake_logger_plugin_mia_audit"}


def test_an_audit_in_a_folder_of_its_own(tmp_path: Path, tiny: dict[str, Any], environment: dict[str, str]) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    planned = run(["mia_audit.cli", "plan", "mine/tiny.yaml", "--records-per-second", "1000"], tmp_path, environment)
    assert "10 models; " in planned
    printed = run(["mia_audit.cli", "run", "mine/tiny.yaml", "--cores", "2"], tmp_path, environment)
    assert "Report" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert {path.name for path in mine.iterdir()} == {"tiny.yaml", "results", ".snakemake"}
    assert (mine / "results" / "tiny" / "report.html").is_file()


def test_the_workflow_as_a_module(tmp_path: Path, tiny: dict[str, Any], environment: dict[str, str]) -> None:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny))
    (tmp_path / "Snakefile").write_text(MODULE)
    wanted = "results/tiny/digits/vit/none-epsinf/signals.parquet"
    run(["snakemake", "--cores", "2", wanted], tmp_path, environment)
    assert (tmp_path / wanted).is_file()
    assert "report" in run(["snakemake", "--cores", "2", "--dry-run"], tmp_path, environment)
