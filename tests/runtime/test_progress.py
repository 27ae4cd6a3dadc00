"""Progress as lines in a log and as a bar on a terminal, and what a stage used."""

import time
from pathlib import Path

import numpy as np
import pytest

from mia_audit.runtime import progress
from mia_audit.runtime.progress import write_usage


def test_a_log_gets_a_line_per_model_and_one_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 11.0, 12.0, 20.0, 21.0, 21.5, 22.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.reporter() as report:
        report.begin("shadow 3 of 0-8", 5, 100)
        for epoch in (1, 2, 3):
            report.step(100, epoch)
        report.end("train accuracy 1.000, test accuracy 0.9")
        report.begin("shadow 4 of 0-8", 1, 100)
        report.step(100, 1)
        report.end("train accuracy 1.000")
    assert capsys.readouterr().err.splitlines() == [
        "shadow 3 of 0-8: epoch 2 of 5, 18 records/s",
        "shadow 3 of 0-8: train accuracy 1.000, test accuracy 0.9, 15 records/s",
        "shadow 4 of 0-8: train accuracy 1.000, 100 records/s",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.reporter() as report:
        report.begin("shadow 0", 1, 10)
        report.step(10, 1)
        report.end("done")
    assert "shadow 0: done" in capsys.readouterr().err


def test_it_has_the_peak_of_memory_and_the_cpu_time(tmp_path: Path) -> None:
    np.ones(25_000_000).sum()  # 200 MB, given back before it is measured
    write_usage(tmp_path / "folder" / "usage.tsv", 12.5)
    names, values = (tmp_path / "folder" / "usage.tsv").read_text().splitlines()
    row = dict(zip(names.split("\t"), map(float, values.split("\t")), strict=True))
    assert list(row) == ["seconds", "cpu_seconds", "peak_mb", "gpu_peak_mb"]
    assert row["seconds"] == 12.5 and 0 < row["cpu_seconds"] <= time.process_time() and row["gpu_peak_mb"] == 0
    assert 200 < row["peak_mb"] < 20_000
