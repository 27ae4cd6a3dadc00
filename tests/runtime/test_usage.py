"""What a stage used is what its process has used."""

import time
from pathlib import Path

import numpy as np

from mia_audit.runtime.progress import write_usage


def test_it_has_the_peak_of_memory_and_the_cpu_time(tmp_path: Path) -> None:
    np.ones(25_000_000).sum()  # 200 MB, given back before it is measured
    write_usage(tmp_path / "folder" / "usage.tsv", 12.5)
    names, values = (tmp_path / "folder" / "usage.tsv").read_text().splitlines()
    row = dict(zip(names.split("\t"), map(float, values.split("\t")), strict=True))
    assert list(row) == ["seconds", "cpu_seconds", "peak_mb", "gpu_peak_mb"]
    assert row["seconds"] == 12.5 and 0 < row["cpu_seconds"] <= time.process_time() and row["gpu_peak_mb"] == 0
    assert 200 < row["peak_mb"] < 20_000
