"""Modification times in the future are set to now; all others stay."""

import os
import time
from pathlib import Path

from mia_audit.runtime.slurm import clamp_future_mtimes


def test_only_times_in_the_future_are_changed(tmp_path: Path) -> None:
    now = time.time()
    times = {"past": now - 1e6, "ahead": now + 1e6, "folder/.ahead": now + 1e9}
    (tmp_path / "folder").mkdir()
    for name, when in times.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    (tmp_path / "link").symlink_to("nowhere")
    assert clamp_future_mtimes(tmp_path) == 2
    assert (tmp_path / "past").stat().st_mtime == times["past"]
    assert now <= (tmp_path / "ahead").stat().st_mtime == (tmp_path / "folder" / ".ahead").stat().st_mtime < now + 1e5
    assert clamp_future_mtimes(tmp_path) == 0


def test_a_missing_folder_has_none(tmp_path: Path) -> None:
    assert clamp_future_mtimes(tmp_path / "results") == 0
