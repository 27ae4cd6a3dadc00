"""Bands of importance, and what a mask's file says."""

import json
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from mia_audit.privacy.masks import Masks, banded, save_masks


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=12))
def test_three_equal_bands(values: list[float]) -> None:
    found = banded(torch.tensor(values), (0.6, 0.8, 1.0)).tolist()
    low, high = min(values), max(values)
    third = (high - low) / 3
    expected = [0.6 if v > low + 2 * third else 0.8 if v > low + third else 1.0 for v in values]
    assert found == expected


def test_the_extremes_are_where_the_paper_puts_them() -> None:
    importance = torch.tensor([0.0, 3.0, 1.0, 2.0, 1.5, 2.5])
    assert banded(importance, (0.5, 0.7, 1.0)).tolist() == [1.0, 0.5, 1.0, 0.7, 0.7, 0.5]
    assert banded(torch.full((4,), 2.0), (0.5, 0.7, 1.0)).tolist() == [1.0] * 4


def test_masks_are_stored_with_their_source(tmp_path: Path) -> None:
    masks = Masks("public records", ("conv", "more"), torch.tensor([[0.6, 1.1]]), torch.tensor([1.1]), 0.25)
    save_masks(masks, tmp_path / "masks-0.safetensors")
    with safe_open(tmp_path / "masks-0.safetensors", "pt") as file:
        metadata = {"source": "public records", "layers": ["conv", "more"], "coverage": 0.25}
        assert json.loads(file.metadata()["masks"]) == metadata
        assert torch.equal(file.get_tensor("channels"), masks.channels)
        assert torch.equal(file.get_tensor("rest"), masks.rest)
