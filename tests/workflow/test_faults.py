"""Damaged files, full disks and wrong clocks: the next run ends in the same bytes, and damage is named, never used."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mia_audit.storage.digests import LOCAL
from mia_audit.storage.tables import diverged_models

Copy = Callable[[dict[str, Any]], Any]

REPRODUCED = (
    "pools/**/*",
    "*/*/explanation_metrics.parquet",
    "*/*/explanations.parquet",
    "*/*/curves.parquet",
    "*/*/*/*.parquet",
    "*/*/*/models/**/*",
    "*/*/*/signals/**/*",
    "tables/*",
    "figures/*",
)


def contents(results: Path) -> dict[str, bytes]:
    """Read the files that are the same after every run; those whose name starts with a dot are Snakemake's or temporary."""
    files = {path for pattern in REPRODUCED for path in results.glob(pattern) if path.is_file()}
    names = {path: path.relative_to(results) for path in files if not path.name.startswith(".")}
    return {str(name): path.read_bytes() for path, name in names.items() if name.parts[0] not in LOCAL}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "damage"),
    [
        ("digits/vit/none-epsinf/scores.parquet", truncate),
        # the readers of these have their own tests in storage/, models/ and pools/
        pytest.param("digits/vit/none-epsinf/models/shadow-1/weights.safetensors", flip, marks=pytest.mark.slow),
        pytest.param("digits/vit/none-epsinf/signals/ig/shadow-2.parquet", flip, marks=pytest.mark.slow),
        pytest.param("digits/vit/public.safetensors", truncate, marks=pytest.mark.slow),
        pytest.param("pools/digits/records.npy", flip, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_intermediate_is_named_and_never_used(
    copy_of_finished: Copy, tiny: dict[str, Any], path: str, damage: Callable[[Path], None]
) -> None:
    copy = copy_of_finished(tiny)
    damaged = copy.results / path
    damage(damaged)
    if "models" in path:  # Snakemake looks at the stamps of jobs, not at what belongs to a model
        next((damaged.parents[2] / "signals" / ".jobs").glob("*")).unlink()
    if "models" in path or "signals/" in path:  # what is made of it is made again where it is missing
        for name in ("signals", "scores", "metrics"):
            (damaged.parents[2] / f"{name}.parquet").unlink()
        (copy.results / "tables" / "settings.csv").unlink()
    report = (copy.results / "report.html").read_bytes()
    result = copy.run()
    assert result.returncode == 1
    assert f"mia-audit: results/tiny/{path}: {'damaged' if damage is flip else 'truncated'}" in result.stdout, (
        result.stdout
    )
    assert "Traceback" not in result.stdout
    assert (copy.results / "report.html").read_bytes() == report


@pytest.mark.slow
def test_after_a_full_disk_the_next_run_continues(finished: Any, copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    """A limit on the size of files stands for the full disk; the page, and perhaps a figure, is larger than it."""
    copy = copy_of_finished(tiny)
    page = copy.results / "report.html"
    limit = page.stat().st_size * 3 // 4
    page.unlink()
    unlimited = copy.prefix
    copy.prefix = ["prlimit", f"--fsize={limit}"]
    result = copy.run()
    assert result.returncode == 1
    assert re.search(r"tiny/\S+: could not be written: .*file too large. Make room", result.stdout), result.stdout
    assert "Traceback" not in result.stdout
    assert not page.exists()
    copy.prefix = unlimited
    assert copy.run().returncode == 0
    assert page.read_bytes() == (finished.results / "report.html").read_bytes()


def test_a_second_orchestrator_is_refused(copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    copy = copy_of_finished(tiny)
    target = "results/tiny/digits/vit/none-epsinf/training.parquet"
    (copy.folder / target).unlink()
    other = copy.in_folder(copy.folder)
    other.log = copy.folder / "other.log"
    copy.hold("merge")
    with copy.started(target) as first:
        copy.wait_until_held("merge", first)
        result = other.run(target)
        copy.release("merge")
        first.wait()
    assert first.returncode == 0, copy.log.read_text()
    assert result.returncode == 1
    assert "Directory cannot be locked" in result.stdout
    assert "Traceback" not in result.stdout


METRICS = [f"results/tiny/digits/vit/{setting}/metrics.parquet" for setting in ("none-epsinf", "dp-sgd-eps8")]


def test_wrong_clocks_change_nothing(finished: Any, copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    """Some files were written while the clock was years ahead, and others while it was years behind."""
    copy = copy_of_finished(tiny)
    jumps = {
        "*/*/none-*/models/.jobs/*": 20,
        "*/*/*/scores.parquet": 20,
        "tables/*": -20,
        "pools/*/*": -20,
    }
    for pattern, years in jumps.items():
        for path in copy.results.glob(pattern):
            moved = path.stat().st_mtime + years * 365 * 86400
            os.utime(path, (moved, moved))
    result = copy.run(*METRICS)
    assert result.returncode == 0, result.stdout
    assert contents(copy.results) == contents(finished.results)


HOT = "digits/vit/hot-epsinf"


def test_divergence_stops_its_block_and_with_keep_going_nothing_else(
    finished: Any, copy_of_finished: Copy, tiny: dict[str, Any]
) -> None:
    """A mechanism that diverges is added to a finished audit: what was there is neither computed again nor changed."""
    copy = copy_of_finished(
        tiny | {"mechanisms": tiny["mechanisms"] | {"hot": {"mechanism": "none", "training": {"learning_rate": 1e30}}}}
    )
    target = f"results/tiny/{HOT}/training.parquet"
    copy.options = ("--cores", "1")
    result = copy.run(target)
    assert result.returncode == 1
    message = rf"mia-audit: shadow [03] of {HOT}: training diverged in epoch 1: "  # of the block that was run first
    assert re.search(message, result.stdout), result.stdout
    assert not list((copy.results / HOT / "models").glob(".jobs/*"))
    copy.configure(copy.config | {"compute": tiny["compute"] | {"keep_going": True}})
    copy.options = ("--cores", "2")
    result = copy.run(target)
    assert result.returncode == 0, result.stdout
    assert list(diverged_models(copy.results / HOT / "training.parquet", "training")) == [0, 1, 2, 3, 4]
    settings = {
        name: data for name, data in contents(finished.results).items() if "-eps" in name and "digits/vit" in name
    }
    assert settings.items() <= contents(copy.results).items()


def test_a_config_that_names_a_slurm_run_cancels_no_job(workflow: Any, tiny: dict[str, Any]) -> None:
    """A run without SLURM that fails calls no `scancel`, whatever names its config makes Snakemake print."""
    name = "SLURM run ID: 0b6b1a6e-4f5a-4b7a-9f5e-7c1c0a5d2e11"
    workflow.wrap("scancel", '#!/bin/sh\necho "$*" >>{folder}/cancelled\n')
    (workflow.folder / name).write_text("no table")
    table = {"source": "table", "path": name, "label": "y", "records": 60, "public": 40}
    mlp = {"architectures": {"mlp": {}}, "training": {"epochs": 1, "batch": 10}}
    workflow.configure(tiny | mlp | {"datasets": {"digits": table}, "mechanisms": {"none": {}}})
    result = workflow.run()
    assert result.returncode == 1
    assert name in "".join(path.read_text() for path in (workflow.folder / ".snakemake" / "log").iterdir())
    assert not (workflow.folder / "cancelled").exists()
