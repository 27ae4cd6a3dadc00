"""Cards by file lock: two processes never share one, and the kernel frees it whatever kills its holder."""

import subprocess
import sys
from pathlib import Path

import pytest

from mia_audit import locks
from mia_audit.compute.cards import take_card
from mia_audit.errors import UserError

HOLDER = """
import sys
from pathlib import Path
from mia_audit.compute.cards import take_card
print(take_card("auto", lambda: ["0", "1"], {}, Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class Busy(Exception):
    """Raised instead of waiting."""


def no_patience(seconds: float) -> None:
    raise Busy


def take(folder: Path, wanted: str = "auto", environment: dict[str, str] | None = None) -> str | None:
    return take_card(wanted, lambda: ["0", "1"], {} if environment is None else environment, folder, no_patience)


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    held: list[int] = []
    monkeypatch.setattr(locks, "_held", held)
    return held


def test_processes_share_no_card_and_a_killed_one_frees_its_own(tmp_path: Path) -> None:
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


def test_the_card_taken_is_the_only_one_seen(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    assert take(tmp_path, "cuda", environment) == "0" and environment == {"CUDA_VISIBLE_DEVICES": "0"}
    assert take(tmp_path, "cuda", environment := {"CUDA_VISIBLE_DEVICES": "0,1"}) == "1"
    assert environment == {"CUDA_VISIBLE_DEVICES": "1"}


def test_it_waits_until_one_is_free(tmp_path: Path, released: list[int]) -> None:
    import os

    assert {take(tmp_path), take(tmp_path)} == {"0", "1"}
    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            os.close(released.pop())  # the second one ends

    assert take_card("auto", lambda: ["0", "1"], {}, tmp_path, wait) == "1"
    assert len(looks) == 3


def test_slurm_and_the_cpu_need_no_lock(tmp_path: Path) -> None:
    given = {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "3"}
    assert take(tmp_path, "cuda", given) is None and given["CUDA_VISIBLE_DEVICES"] == "3"
    hidden: dict[str, str] = {}
    assert take(tmp_path, "cpu", hidden) is None and hidden == {"CUDA_VISIBLE_DEVICES": ""}
    assert take(tmp_path, "auto", {"SLURM_JOB_ID": "7"}) is None  # no card was asked for
    assert take_card("auto", list, {}, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_inside_an_allocation_of_several_cards_shares_them_out(tmp_path: Path) -> None:
    given = [{"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1"} for _ in range(3)]
    assert [take(tmp_path, "auto", environment) for environment in given[:2]] == ["0", "1"]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in given[:2]] == ["0", "1"]
    with pytest.raises(Busy):
        take(tmp_path, "auto", given[2])


@pytest.mark.parametrize("hidden", ["", "-1", " -1,0"])
def test_cards_that_are_hidden_are_not_taken(tmp_path: Path, hidden: str) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": hidden}
    assert take(tmp_path, "auto", environment) is None and environment == {"CUDA_VISIBLE_DEVICES": hidden}
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="the cards here are: none"):
        take(tmp_path, "cuda:0", environment)


def test_a_card_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cuda:5 was asked for, but the cards here are: 0, 1"):
        take(tmp_path, "cuda:5")
