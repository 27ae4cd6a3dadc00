"""Sums in a fixed order on a card, and operations that have none."""

import os
from collections.abc import Iterator

import pytest
import torch

from mia_audit.compute.memory import Halving
from mia_audit.compute.repeat import WORKSPACE, repeat_exactly
from mia_audit.training.device import device_for


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    threads = torch.get_num_threads()
    yield
    torch.set_deterministic_debug_mode("default")
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(threads)


def test_a_card_adds_in_a_fixed_order_and_a_cpu_does_so_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for(1, "cpu") == "cpu" and not torch.are_deterministic_algorithms_enabled()
    assert device_for(1, "auto") == "cuda" and torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert os.environ[WORKSPACE] == ":4096:8"


def test_an_operation_that_cannot_is_let_be_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    repeat_exactly()
    tries: list[int] = []

    def unordered(size: int) -> str:
        tries.append(size)
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(
                "max_pool2d_with_indices_backward_cuda does not have a deterministic implementation, but you set"
                " 'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
            )
        return "done"

    assert Halving(8)(unordered) == "done" and tries == [8, 8]
    assert capsys.readouterr().err == (
        "max_pool2d_with_indices_backward_cuda adds in any order on this card: a rerun ends in the same numbers but for"
        " rounding\n"
    )
