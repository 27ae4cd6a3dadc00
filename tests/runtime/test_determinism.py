"""Deterministic kernels on a GPU, and operations that have none."""

import os
from collections.abc import Iterator

import pytest
import torch

from mia_audit.runtime.device import WORKSPACE, AdaptiveBatchSize, device_for, make_deterministic


@pytest.fixture(autouse=True)
def restore_torch_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(WORKSPACE, raising=False)
    threads = torch.get_num_threads()
    yield
    torch.set_deterministic_debug_mode("default")
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(threads)


def test_only_a_gpu_is_made_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_for(1, "cpu") == "cpu" and not torch.are_deterministic_algorithms_enabled()
    assert device_for(1, "auto") == "cuda" and torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert os.environ[WORKSPACE] == ":4096:8"


def test_an_operation_without_a_deterministic_kernel_is_allowed_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    make_deterministic()
    tries: list[int] = []

    def unordered(size: int) -> str:
        tries.append(size)
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(
                "max_pool2d_with_indices_backward_cuda does not have a deterministic implementation, but you set"
                " 'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
            )
        return "done"

    assert AdaptiveBatchSize(8)(unordered) == "done" and tries == [8, 8]
    said = capsys.readouterr().err
    assert said.startswith("max_pool2d_with_indices_backward_cuda has no") and said.count("\n") == 1
