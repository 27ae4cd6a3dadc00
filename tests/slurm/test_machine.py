"""What `mia-audit check` says with a real controller."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from mia_audit.planning import machine

PROFILE = Path(__file__).parents[2] / "profiles" / "slurm" / "config.yaml"


def test_a_cluster_in_reach_is_ok_and_one_whose_controller_is_away_is_a_warning(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)

    def verdicts() -> list[tuple[str, str]]:
        return [(one.verdict, one.what) for one in machine.slurm(machine.ask, shutil.which, PROFILE)]

    assert verdicts() == [("ok", "slurm"), ("ok", "slurm accounts")]
    assert cluster.control("stop").returncode == 0
    try:
        assert verdicts() == [("warn", "slurm")]
    finally:
        assert cluster.control("start").returncode == 0
