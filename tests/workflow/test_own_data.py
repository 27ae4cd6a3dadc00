"""A user's own images with own weights to start from, from files to trained models.

What follows does not depend on where records come from; tests/pools has the stages as far as signals, of tables too.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL.Image import fromarray

from mia_audit.models.architecture import build
from mia_audit.models.weights import save_weights

VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 1}
CONFIG = {
    "audit": "tiny",
    "datasets": {"photos": {"source": "images", "path": "photos"}},
    "membership": {"models": 4},
    "architectures": {"vit": {"model": "vision_transformer", "parameters": VIT, "pretrained": "own.safetensors"}},
    "mechanisms": {"none": {}},
    "training": {"epochs": 1, "batch": 8},
    "explainers": {"methods": ["ixg"]},
    "compute": {"shadows_per_job": 4},
}


@pytest.mark.slow
def test_a_folder_of_images_with_weights_from_a_file(workflow: Any) -> None:
    folder: Path = workflow.folder
    random = np.random.default_rng(0)
    for number in range(40):
        path = folder / "photos" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    save_weights(build("vision_transformer", VIT, (3, 8, 8), 7, seed=0), folder / "own.safetensors")
    workflow.configure(CONFIG)
    models = "photos/vit/none-epsinf/models"
    result = workflow.run(f"results/tiny/{models}/.jobs/000-003")
    assert result.returncode == 0, result.stdout
    training = pl.read_parquet(workflow.results / models / "shadow-*.parquet")
    assert training["shadow"].unique().sort().to_list() == [0, 1, 2, 3] and training["loss"].is_finite().all()
    assert (workflow.results / "photos/vit/start.safetensors").exists()
