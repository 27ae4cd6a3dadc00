"""`make gpu-check`: its checks pass where they have a meaning on the CPU, and notice what is not as it should be."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import device_checks
import gpu_check

QUICK = (device_checks.residency,)


@pytest.mark.parametrize(
    "check",
    [
        *QUICK,
        *(pytest.param(check, marks=pytest.mark.slow) for check in device_checks.ON_ANY if check not in QUICK),
    ],
    ids=lambda check: str(check.__name__),
)
def test_checks_pass_on_the_cpu(check: Callable[[str], Iterator[Any]]) -> None:
    rows = list(check("cpu"))
    assert rows and [row for row in rows if not row.good] == []


def test_pretended_gpus_are_locked() -> None:
    alone, more = gpu_check.locks(["0", "1"])
    assert alone.good and more.good, (alone, more)


def test_numbers_that_differ_are_noticed() -> None:
    one, other = {"a": np.ones(3, np.float32)}, {"a": np.array([1, 1, 1.002], np.float32)}
    assert not device_checks.near("x", one, other).good and device_checks.near("x", one, one).good
    assert device_checks.same("x", one, other).measured == "a differs"
    assert not device_checks.near("x", one, {"a": np.array([1, 1, np.nan], np.float32)}).good


def test_records_on_the_wrong_rows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checks.Inputs, "_staged", lambda self, rows: device_checks.torch.zeros(20, 3, 8, 8))
    assert [row.good for row in device_checks.residency("cpu")] == [False, False]


def test_without_a_gpu_there_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "installed_gpus", list)
    assert gpu_check.main() == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1
