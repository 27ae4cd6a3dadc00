"""A user's own images with own weights to start from, and an own table, from files to trained models.

What follows does not depend on where records come from; tests/pools has the stages as far as signals.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL.Image import fromarray

from mia_audit.models import build, save_weights
from mia_audit.storage import read_frame, table_metadata

VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 1}
SHORT = {"membership": {"models": 4}, "training": {"epochs": 1, "batch": 8}, "explainers": {"methods": ["ixg"]}}


def train(workflow: Any, config: dict[str, Any], setting: str) -> pl.DataFrame:
    """Run an audit without privacy as far as one setting's table of training."""
    workflow.configure({"audit": "tiny", "mechanisms": {"none": {}}, **SHORT, **config})
    path = f"{setting}/none-epsinf/training.parquet"
    result = workflow.run(f"results/tiny/{path}")
    assert result.returncode == 0, result.stdout
    return read_frame(workflow.results / path, "training")


@pytest.mark.slow
def test_a_folder_of_images_with_weights_from_a_file(workflow: Any) -> None:
    folder: Path = workflow.folder
    random = np.random.default_rng(0)
    for number in range(40):
        path = folder / "photos" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    save_weights(build("vision_transformer", VIT, (3, 8, 8), 7, seed=0), folder / "own.safetensors")
    vit = {"model": "vision_transformer", "parameters": VIT, "pretrained": "own.safetensors"}
    config = {"datasets": {"photos": {"source": "images", "path": "photos"}}, "architectures": {"vit": vit}}
    training = train(workflow, config, "photos/vit")
    assert training["shadow"].unique().sort().to_list() == [0, 1, 2, 3] and training["loss"].is_finite().all()
    assert (workflow.results / "photos/vit/start.safetensors").exists()


def test_a_table(workflow: Any) -> None:
    random = np.random.default_rng(0)
    frame = {
        "age": random.normal(40, 10, 60),
        "town": random.choice(["Ulm", "Bern"], 60),
        "label": ["low", "high"] * 30,
    }
    pl.DataFrame(frame).write_csv(workflow.folder / "people.csv")
    people = {"source": "table", "path": "people.csv", "public": 20, "standardise": "public"}
    training = train(workflow, {"datasets": {"people": people}, "architectures": {"mlp": {}}}, "people/mlp")
    assert training["records"].max() == 20
    assert table_metadata(workflow.results / "pools/people/records.parquet", "records")["standardise"] == "public"
