"""Canaries of a few digits, made once."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.canaries.draw import DrawnCanaries, make

METADATA = {"name": "spots", "kind": "image", "shape": [1, 4, 4], "classes": ["a", "b", "c"], "features": []}
KINDS = ("natural", "mislabelled", "rare", "noise")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DrawnCanaries]:
    """The folder of 80 canaries among 200 images, and the canaries; treat both as read-only."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 200)
    records = (80 * labels[:, None, None, None] + random.integers(0, 40, (200, 1, 4, 4))).astype(np.uint8)
    out = tmp_path_factory.mktemp("canaries") / "spots"
    return out, make(records, labels, METADATA, KINDS, 80, out, seed=5)
