"""Stored records become standardised float32 tensors of the model's size."""

import numpy as np
import torch
import torch.nn.functional as F

from mia_audit.models import to_input

FACTS = {"kind": "image", "mean": 0.25, "sd": 0.5}


def test_images_are_standardised() -> None:
    records = np.array([0, 51, 255], dtype=np.uint8).reshape(3, 1, 1, 1)
    assert torch.allclose(to_input(records, FACTS).flatten(), torch.tensor([-0.5, -0.1, 1.5]))


def test_a_mean_per_channel() -> None:
    records = np.full((2, 3, 4, 4), 255, dtype=np.uint8)
    images = to_input(records, {"kind": "image", "mean": [0.0, 0.5, 1.0], "sd": [1.0, 0.5, 2.0]})
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
