"""The sacct that is put before SLURM's own."""

import os
import subprocess
from pathlib import Path

import pytest

from mia_audit.slurm import put_first_on_path

OWN = Path(__file__).parents[1] / "workflow" / "profiles" / "slurm" / "bin"
THEIRS = """#!/bin/sh
echo "asked $*"
echo "7|CANCELLED by 1000"
echo "8|COMPLETED"
exit 3
"""


def test_cancelled_jobs_are_told_in_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sacct").write_text(THEIRS)
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert put_first_on_path(OWN)
    assert put_first_on_path(OWN)
    assert os.environ["PATH"].split(":").count(str(OWN)) == 1
    told = subprocess.run(["sacct", "-X", "--name", "a b"], capture_output=True, text=True)
    assert told.stdout.splitlines() == ["asked -X --name a b", "7|CANCELLED", "8|COMPLETED"]
    assert told.returncode == 3


def test_without_slurm_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not put_first_on_path(OWN)
    assert os.environ["PATH"] == str(tmp_path)
