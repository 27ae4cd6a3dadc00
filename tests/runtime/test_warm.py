"""The warm worker: what a job does and how it ends is the same as in a process of its own, and nothing outlives a kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mia_audit.runtime import warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")

STAGE = """
import os, sys, time
from pathlib import Path

def pool_arguments(parser):
    parser.add_argument("what")

def run_pool(options):
    Path("here").write_text(f"{os.getpid()} {os.getppid()} {os.environ['NAMED']}")
    print("says", options.what)
    if options.what == "waits":
        time.sleep(600)
    if options.what == "raises":
        raise RuntimeError("broken")
    return 7 if options.what == "seven" else 0
"""
SERVER = """
import os, sys, types
from mia_audit import cli, commands
stage = types.ModuleType("mia_audit.commands.pools")
exec({stage!r}, stage.__dict__)
sys.modules["mia_audit.commands.pools"] = stage
from mia_audit.runtime import warm
warm._preload = lambda stage, load, pytorch: os.environ.update(TORCH_VARIABLE="set while PyTorch is imported")
warm.import_module = lambda name: None
warm.serve(int(sys.argv[1]), cli._run, str, pytorch=False)
"""
JOB = "import sys; sys.argv[0] = 'mia-audit'; from mia_audit.cli import main; sys.exit(main())"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a worker whose stage `pool` is replaced: only a job that runs in the worker has that stage."""
    monkeypatch.delenv(warm.ADDRESS)
    monkeypatch.setattr(warm, "PROGRAM", SERVER.format(stage=STAGE))
    started = warm.start(threads=1, pytorch=False)
    assert started is not None
    yield started
    started.kill()
    started.wait()


def job(folder: Path, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", JOB, "pool", *arguments],
        cwd=folder,
        env=os.environ | {"NAMED": "by the job"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def gone(process: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("what", "code"), [("works", 0), ("seven", 7), ("raises", 1)])
def test_a_job_has_its_folder_environment_output_and_exit_code(
    worker: "subprocess.Popen[bytes]", tmp_path: Path, what: str, code: int
) -> None:
    with job(tmp_path, what) as process:
        said, _ = process.communicate()
    assert process.returncode == code
    assert said.startswith(f"says {what}\n") and ("RuntimeError: broken" in said) == (what == "raises")
    child, parent, named = (tmp_path / "here").read_text().split(" ", 2)
    assert (int(parent), named) == (worker.pid, "by the job") and int(child) != process.pid


def test_what_an_import_sets_in_the_worker_keeps_no_later_job_away(
    worker: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    for _ in range(2):
        with job(tmp_path, "works") as process:
            assert process.communicate()[0] == "says works\n" and process.returncode == 0


def test_help_and_refused_arguments_end_as_they_do_without_a_worker(
    worker: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    with job(tmp_path, "--help") as process:
        assert "what" in process.communicate()[0] and process.returncode == 0
    with job(tmp_path, "one", "two") as process:
        assert "unrecognized arguments: two" in process.communicate()[0] and process.returncode == 2


def test_packages_are_imported_while_the_pool_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    note = f"warm._preload = warm.import_module = lambda name, *_: print(name, file=open({str(loaded)!r}, 'a'))"
    noted = SERVER.replace("warm.serve(", f"{note}\nwarm.serve(")
    monkeypatch.delenv(warm.ADDRESS)
    monkeypatch.setattr(warm, "PROGRAM", noted.format(stage=STAGE))
    worker = warm.start(threads=1, pytorch=True)
    assert worker is not None
    waiting = job(tmp_path, "waits")
    until(lambda: loaded.exists() and loaded.read_text().split() == ["pool", *reversed(warm.SHARED), "architecture"])
    assert waiting.poll() is None
    waiting.kill()
    worker.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_killed_ends_its_child(
    worker: "subprocess.Popen[bytes]", tmp_path: Path, number: signal.Signals
) -> None:
    process = job(tmp_path, "waits")
    until(lambda: (tmp_path / "here").exists() and (tmp_path / "here").read_text())
    child = int((tmp_path / "here").read_text().split()[0])
    process.send_signal(number)
    process.communicate()
    until(lambda: gone(child))
    assert process.returncode != 0


def test_a_child_that_is_killed_fails_its_job(worker: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    process = job(tmp_path, "waits")
    until(lambda: (tmp_path / "here").exists() and (tmp_path / "here").read_text())
    os.kill(int((tmp_path / "here").read_text().split()[0]), signal.SIGKILL)
    process.communicate()
    assert process.returncode == 137


@pytest.mark.parametrize("other", [{"OMP_NUM_THREADS": "3"}, {"LD_BIND_NOW": "1"}, {warm.ADDRESS: "nobody"}])
def test_a_job_that_the_worker_cannot_serve_runs_by_itself(
    worker: "subprocess.Popen[bytes]", tmp_path: Path, other: dict[str, str]
) -> None:
    with job(tmp_path, "works", **other) as process:
        said, _ = process.communicate()
    assert process.returncode == 2 and "the following arguments are required" in said  # of the real stage


def test_the_worker_ends_with_the_process_that_started_it(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    worker.wait(timeout=30)
    assert worker.returncode == 0


def test_a_job_with_a_limit_of_its_own_runs_by_itself(worker: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    limited = subprocess.run(
        ["bash", "-c", f'ulimit -f 1000; {sys.executable} -c "{JOB}" pool works'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert limited.returncode == 2 and "the following arguments are required" in limited.stderr


def test_one_that_has_been_started_is_kept(worker: "subprocess.Popen[bytes]") -> None:
    assert warm.start(threads=1, pytorch=True) is None


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warm.ADDRESS, "off")
    assert warm.start(threads=1, pytorch=False) is None
    assert warm.run_warm(["pool"]) is None
