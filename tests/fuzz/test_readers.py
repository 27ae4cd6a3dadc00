"""Readers on broken files: a few cases always, more with `slow`, as many as there is time for with --fuzz-seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
START = 120.0
"""Seconds that imports and whole files may take on a busy machine."""


def fuzz(folder: Path, *words: str, seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, str(FUZZ), str(folder / "fuzz"), *words],
        capture_output=True,
        text=True,
        timeout=seconds + START,
    )
    assert done.returncode == 0, (
        f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}\nthe files are in {folder / 'fuzz' / 'broken'}"
    )


def test_broken_files_are_a_line_or_a_result(tmp_path: Path) -> None:
    fuzz(tmp_path, "--light", "--cases", "8", "--seed", "0", seconds=60)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_broken_files_are_a_line_or_a_result(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    seconds, seed = pytestconfig.getoption("--fuzz-seconds"), str(pytestconfig.getoption("--fuzz-seed"))
    if seconds is None:  # the same files on every machine
        fuzz(tmp_path, "--cases", "120", "--seed", seed, seconds=300)
    else:
        fuzz(tmp_path, "--seconds", str(seconds), "--seed", seed, seconds=seconds)
