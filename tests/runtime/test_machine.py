"""What is prepared before a workflow: how often Snakemake looks at its jobs, times in the future, results of other versions."""

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.scheduling.job_scheduler import JobScheduler

from mia_audit.errors import UserError
from mia_audit.runtime.machine import look_once_a_timespan
from mia_audit.runtime.slurm import clamp_future_mtimes
from mia_audit.runtime.versions import refuse_other_version


def test_jobs_that_end_do_not_add_looks(monkeypatch):
    monkeypatch.setattr(JobScheduler, "_schedule_reevalutation", JobScheduler._schedule_reevalutation)
    look_once_a_timespan()
    looks = threading.Semaphore(0)
    scheduler = SimpleNamespace(_open_jobs=looks)
    before = threading.active_count()
    for _ in range(20):
        JobScheduler._schedule_reevalutation(scheduler, 0.05)
    assert threading.active_count() == before + 1
    assert looks.acquire(timeout=10) and not looks.acquire(blocking=False)
    # a look that finds waiting jobs asks for the next one
    JobScheduler._schedule_reevalutation(scheduler, 0.05)
    assert looks.acquire(timeout=10)


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


@pytest.mark.parametrize("known", ["1.0.0", "1.2.9", "1.0.0rc1", None, 3, "?", ""])
def test_results_that_are_read_and_continued(known: object, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(json.dumps({"versions": {"mia-audit": known}}))
    refuse_other_version(tmp_path, "1.2.3")


@pytest.mark.parametrize("known", ["0.1.0", "2.0.0", "1.3.0"])
def test_results_of_another_version(known: str, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(json.dumps({"versions": {"mia-audit": known}}))
    with pytest.raises(UserError, match=rf"results of mia-audit {known}, which 1\.2\.3 neither reads nor continues"):
        refuse_other_version(tmp_path, "1.2.3")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"versions": []}'])
def test_results_without_a_version(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "provenance.json").write_text(text)
    refuse_other_version(tmp_path, "1.2.3")
