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


BAD = """
import subprocess, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import fuzz
from mia_audit.errors import UserError
from readers import Reader

def reader(name, wrong):
    def read(path):
        if path.read_bytes() != b"whole" * 9:
            wrong()
    return Reader(name, lambda folder: (folder / name).write_bytes(b"whole" * 9), read)

def refuse():
    raise UserError("damaged")

def grow():
    bytearray(2_000_000_000)

fuzz.LIGHT[:] = [
    reader("sound", refuse),
    reader("trips", lambda: 1 / 0),
    reader("grows", grow),
    reader("writes", lambda: Path({outside!r}).write_text("x")),
    reader("starts", lambda: subprocess.run(["true"])),
]
sys.argv[1:] = [{run!r}, "--light", "--cases", "1"]
sys.exit(fuzz.main())
"""


def test_a_reader_that_does_what_none_may_is_found(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    script = BAD.format(folder=str(FUZZ.parent), outside=str(outside), run=str(tmp_path / "fuzz"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=START)
    assert done.returncode == 1, done.stderr
    for name, error in (("trips", "ZeroDivision"), ("grows", "Memory"), ("writes", "Outside"), ("starts", "Outside")):
        assert f"{name}, case 1" in done.stdout and error in done.stdout
    assert "sound, case 1" not in done.stdout
    assert "1 cases of 5 readers, 4 failures" in done.stdout
    assert not outside.exists()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_broken_files_are_a_line_or_a_result(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    seconds, seed = pytestconfig.getoption("--fuzz-seconds"), str(pytestconfig.getoption("--fuzz-seed"))
    if seconds is None:  # the same files on every machine
        fuzz(tmp_path, "--cases", "60", "--seed", seed, seconds=300)
    else:
        fuzz(tmp_path, "--seconds", str(seconds), "--seed", seed, seconds=seconds)
