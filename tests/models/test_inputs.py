"""Stored records become standardised float32 tensors of the model's size."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mia_audit.models import inputs
from mia_audit.models.inputs import Inputs, Subset, to_input

FACTS = {"kind": "image", "mean": 0.25, "std": 0.5}


def test_images_are_standardised() -> None:
    records = np.array([0, 51, 255], dtype=np.uint8).reshape(3, 1, 1, 1)
    assert torch.allclose(to_input(records, FACTS).flatten(), torch.tensor([-0.5, -0.1, 1.5]))


def test_a_mean_per_channel() -> None:
    records = np.full((2, 3, 4, 4), 255, dtype=np.uint8)
    images = to_input(records, {"kind": "image", "mean": [0.0, 0.5, 1.0], "std": [1.0, 0.5, 2.0]})
    assert torch.equal(images[1, :, 2, 3], torch.tensor([1.0, 1.0, 0.0]))


def test_images_are_resized_to_the_models_input() -> None:
    records = np.random.default_rng(0).integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)
    plain = to_input(records, FACTS, (1, 8, 8))
    resized = to_input(records, FACTS, (1, 16, 16))
    assert torch.equal(plain, to_input(records, FACTS))
    assert torch.allclose(resized, F.interpolate(plain, size=(16, 16), mode="bilinear", align_corners=False), atol=1e-6)


def test_tables_pass_through_and_are_copied() -> None:
    records = np.arange(6, dtype=np.float32).reshape(2, 3)
    records.setflags(write=False)
    rows = to_input(records, {"kind": "table"})
    rows += 1
    assert records[0, 0] == 0 and rows.dtype == torch.float32


@pytest.mark.parametrize("ready", [True, False])
def test_the_heap_is_trimmed_once_a_batch_of_a_large_pool(monkeypatch: pytest.MonkeyPatch, ready: bool) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(inputs, "READY", 2**28 if ready else 0)
    monkeypatch.setattr(inputs, "_malloc_trim", lambda: trimmed.append)
    pool = Inputs(np.zeros((4, 1, 8, 8), dtype=np.uint8), FACTS, (1, 8, 8))
    for rows in (slice(0, 2), slice(2, 4), torch.tensor([1])):
        pool[rows]
    assert trimmed == ([] if ready else [0, 0, 0])


@pytest.mark.parametrize("ready", [True, False])
def test_a_batch_is_the_same_whether_the_pool_is_kept_or_read_from_its_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    stored = np.random.default_rng(0).integers(0, 256, (20, 3, 8, 8), dtype=np.uint8)
    np.save(tmp_path / "records.npy", stored)
    mapped = np.load(tmp_path / "records.npy", mmap_mode="r")
    monkeypatch.setattr(inputs, "READY", 2**28 if ready else 0)
    pool = Inputs(mapped, FACTS, (3, 16, 16))
    rows = torch.tensor([7, 0, 7, 19])
    assert len(pool) == 20
    assert torch.equal(pool[rows], to_input(stored[rows.numpy()], FACTS, (3, 16, 16)))
    assert torch.equal(pool[5:9], to_input(stored[5:9], FACTS, (3, 16, 16)))
    part = Subset(pool, torch.tensor([3, 19, 0]))
    assert len(part) == 3
    assert torch.equal(part[torch.tensor([1, 2])], pool[torch.tensor([19, 0])])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux only")
def test_a_large_pool_leaves_no_pages_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "records.npy", np.zeros((256, 1, 256, 256), dtype=np.uint8))
    mapped = np.load(tmp_path / "records.npy", mmap_mode="r")
    monkeypatch.setattr(inputs, "READY", 0)
    pool = Inputs(mapped, FACTS, (1, 256, 256))
    for start in range(0, 256, 8):
        pool[start : start + 8]
    assert resident(tmp_path / "records.npy") == 0
    assert mapped[:64].sum() == 0
    assert resident(tmp_path / "records.npy") >= 64 * 256 * 256  # the measure itself sees pages that are held


def resident(path: Path) -> int:
    """Bytes of a mapped file that are this process's, by the kernel's own account."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(index for index, line in enumerate(lines) if line.endswith(str(path)))
    return 1024 * next(int(line.split()[1]) for line in lines[start:] if line.startswith("Rss:"))


def test_facts_that_change_no_input_change_no_key_of_a_training() -> None:
    stored = np.zeros((2, 3), dtype=np.float32)
    described = [
        Inputs(stored, {"kind": "table", "shape": [3], **more}, (3,)).preprocessing
        for more in ({}, {"collected": {"classes": ["a", "b"]}, "section": "0"}, {"standardise": "public"})
    ]
    assert described[0] == described[1] != described[2]
