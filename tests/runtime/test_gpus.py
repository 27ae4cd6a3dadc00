"""GPUs by file lock: two processes never share one, and a killed process gives its own up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from mia_audit.errors import UserError
from mia_audit.runtime import machine
from mia_audit.runtime.machine import acquire_gpu, usable_gpus

HOLDER = """
import sys
from pathlib import Path
from mia_audit.runtime.machine import acquire_gpu
print(acquire_gpu("auto", lambda: ["0", "1"], {}, Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class Busy(Exception):
    """Raised instead of waiting."""


def do_not_wait(seconds: float) -> None:
    raise Busy


def take(folder: Path, wanted: str = "auto", environment: dict[str, str] | None = None) -> str | None:
    return acquire_gpu(wanted, lambda: ["0", "1"], {} if environment is None else environment, folder, do_not_wait)


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> list[FileLock]:
    """The locks that this process takes in a test; they are released when the test ends."""
    locks: list[FileLock] = []
    monkeypatch.setattr(machine, "_held", locks)
    return locks


def test_processes_share_no_gpu_and_a_killed_one_releases_its_own(tmp_path: Path) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    taken = {holder.stdout.readline().strip(): holder for holder in holders if holder.stdout}
    assert set(taken) == {"0", "1"}
    with pytest.raises(Busy):
        take(tmp_path)
    taken["1"].kill()
    taken["1"].wait()
    assert take(tmp_path) == "1"
    with pytest.raises(Busy):
        take(tmp_path, "cuda:0")
    taken["0"].communicate("")
    assert take(tmp_path, "cuda:0") == "0"


def test_the_locked_gpu_is_the_only_visible_one(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    assert take(tmp_path, "cuda", environment) == "0" and environment == {"CUDA_VISIBLE_DEVICES": "0"}
    assert take(tmp_path, "cuda", environment := {"CUDA_VISIBLE_DEVICES": "0,1"}) == "1"
    assert environment == {"CUDA_VISIBLE_DEVICES": "1"}


def test_it_waits_until_a_gpu_is_free(tmp_path: Path, held: list[FileLock]) -> None:
    assert {take(tmp_path), take(tmp_path)} == {"0", "1"}
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            held.pop().release()

    assert acquire_gpu("auto", lambda: ["0", "1"], {}, tmp_path, wait) == "1"
    assert len(waits) == 3


def test_a_slurm_job_and_the_cpu_need_no_lock(tmp_path: Path) -> None:
    given = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "3"}
    assert take(tmp_path, "cuda", given) is None and given["CUDA_VISIBLE_DEVICES"] == "3"
    hidden: dict[str, str] = {}
    assert take(tmp_path, "cpu", hidden) is None and hidden == {"CUDA_VISIBLE_DEVICES": ""}
    assert take(tmp_path, "auto", {"SLURM_JOB_ID": "7"}) is None  # the job asked SLURM for no GPU
    assert acquire_gpu("auto", list, {}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_inside_an_allocation_of_several_gpus_distributes_them(tmp_path: Path) -> None:
    given = [{"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1"} for _ in range(3)]
    assert [take(tmp_path, "auto", environment) for environment in given[:2]] == ["0", "1"]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in given[:2]] == ["0", "1"]
    with pytest.raises(Busy):
        take(tmp_path, "auto", given[2])


@pytest.mark.parametrize("hidden", ["", "-1", " -1,0"])
def test_hidden_gpus_are_not_taken(tmp_path: Path, hidden: str) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": hidden}
    assert take(tmp_path, "auto", environment) is None and environment == {"CUDA_VISIBLE_DEVICES": hidden}
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="the GPUs here are: none"):
        take(tmp_path, "cuda:0", environment)


def test_a_gpu_that_does_not_exist_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cuda:5 was requested; the GPUs here are: 0, 1"):
        take(tmp_path, "cuda:5")


def test_what_is_waited_for_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {take(tmp_path), take(tmp_path)} == {"0", "1"}
    waits = iter(range(3))

    def wait(seconds: float) -> None:
        if next(waits) == 2:
            raise Busy

    with pytest.raises(Busy):
        acquire_gpu("auto", lambda: ["0", "1"], {}, tmp_path, wait)
    said = capsys.readouterr().err
    assert said.startswith("waiting for GPU 0 or 1, locked by your other") and said.count("\n") == 1
    assert said.endswith(f"(locks in {tmp_path})\n")


def test_locks_are_in_a_folder_that_others_cannot_have_made(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / f"mia-audit-gpus-{os.getuid()}").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="expected a folder to which only you can write"):
        acquire_gpu("auto", lambda: ["0"], {"XDG_RUNTIME_DIR": str(tmp_path)}, None, do_not_wait)
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "visible", "expected"),
    [
        ("auto", None, ["0", "1"]),
        ("cuda", "1", ["1"]),
        ("cuda:1", None, ["1"]),
        ("cuda:7", None, []),
        ("cpu", None, []),
        ("auto", "", []),
    ],
)
def test_jobs_share_the_gpus_that_are_visible_and_wanted(wanted: str, visible: str | None, expected: list[str]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert usable_gpus(wanted, lambda: ["0", "1"], environment) == expected
