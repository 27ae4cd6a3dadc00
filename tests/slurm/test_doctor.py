"""What the doctor says of a real controller."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from mia_audit import doctor


def test_a_cluster_in_reach_is_ok_and_one_whose_controller_is_away_is_a_note(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    shim = Path(__file__).parents[2] / "workflow" / "profiles" / "slurm" / "bin" / "sacct"

    def found() -> list[tuple[str, str]]:
        return [(one.verdict, one.what) for one in doctor.slurm(doctor.ask, shutil.which, shim)]

    assert found() == [("ok", "slurm"), ("ok", "slurm accounts")]
    assert cluster.do("stop").returncode == 0
    try:
        assert found() == [("note", "slurm")]
    finally:
        assert cluster.do("start").returncode == 0
