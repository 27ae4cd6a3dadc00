"""Snakemake's lock is released after a killed run, never under a living one."""

import subprocess
import sys
from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.runtime.slurm import release_stale_lock

HOLD = """
import pathlib, sys
from mia_audit.runtime.slurm import release_stale_lock
release_stale_lock(pathlib.Path("."))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / ".snakemake" / "locks" / "0.output.lock"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def orchestrator(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_left_by_a_killed_orchestrator_is_released(tmp_path: Path) -> None:
    process = orchestrator(tmp_path)
    path = tmp_path / ".snakemake" / "locks" / "0.output.lock"
    path.parent.mkdir()
    path.touch()
    process.kill()
    process.wait()
    assert release_stale_lock(tmp_path)
    assert not path.exists()


def test_the_lock_of_a_living_orchestrator_stays_after_an_earlier_one_is_killed(tmp_path: Path) -> None:
    first, second = orchestrator(tmp_path), orchestrator(tmp_path)
    path = tmp_path / ".snakemake" / "locks" / "0.output.lock"
    path.parent.mkdir()
    path.touch()
    try:
        first.kill()
        first.wait()
        assert not release_stale_lock(tmp_path)
        assert path.exists()
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def test_the_lock_of_another_host_stays(tmp_path: Path, lock: Path) -> None:
    (tmp_path / ".snakemake" / "orchestrator").write_text("another-host")
    assert not release_stale_lock(tmp_path)
    assert lock.exists()


def test_without_a_lock_there_is_nothing_to_release(tmp_path: Path) -> None:
    assert not release_stale_lock(tmp_path)


@pytest.mark.parametrize("name", ["orchestrator", "locks", ""])
def test_links_of_others_are_refused_and_nothing_behind_them_changes(tmp_path: Path, name: str) -> None:
    work, theirs = tmp_path / "work", tmp_path / "theirs"
    (theirs / "locks").mkdir(parents=True)
    for file in (theirs / "orchestrator", theirs / "0.lock", theirs / "locks" / "0.lock"):
        file.write_text("precious")
    target = theirs if name != "orchestrator" else theirs / "orchestrator"
    work.mkdir()
    if name:
        (work / ".snakemake").mkdir()
    (work / ".snakemake" / name).symlink_to(target)
    with pytest.raises(UserError, match="a symbolic link"):
        release_stale_lock(work)
    for file in (theirs / "orchestrator", theirs / "0.lock", theirs / "locks" / "0.lock"):
        assert file.read_text() == "precious"
