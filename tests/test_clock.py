"""Times in the future are brought back to now, and no others are touched."""

import os
import time
from pathlib import Path

from mia_audit.clock import bring_back


def test_only_what_lies_in_the_future_is_brought_back(tmp_path: Path) -> None:
    now = time.time()
    times = {"past": now - 1e6, "ahead": now + 1e6, "folder/.ahead": now + 1e9}
    (tmp_path / "folder").mkdir()
    for name, when in times.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    (tmp_path / "link").symlink_to("nowhere")
    assert bring_back(tmp_path) == 2
    assert (tmp_path / "past").stat().st_mtime == times["past"]
    assert now <= (tmp_path / "ahead").stat().st_mtime == (tmp_path / "folder" / ".ahead").stat().st_mtime < now + 1e5
    assert bring_back(tmp_path) == 0


def test_results_that_are_not_there_yet_are_none(tmp_path: Path) -> None:
    assert bring_back(tmp_path / "results") == 0
