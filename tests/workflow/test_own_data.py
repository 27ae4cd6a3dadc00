"""A user's own images, with weights of their own to start from, and a user's own table with private constants, from their files to metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.cli import main
from mia_audit.models import build, save_weights
from mia_audit.storage import read_table, table_facts

VIT = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 1}
SHORT = {"membership": {"models": 4}, "training": {"epochs": 1, "batch": 8}, "explainers": {"methods": ["ixg"]}}


def metrics(workflow: Any, config: dict[str, Any], setting: str) -> pl.DataFrame:
    """Run an audit without privacy as far as one setting's metrics."""
    workflow.configure({"audit": "tiny", "mechanisms": {"none": {}}, **SHORT, **config})
    path = f"{setting}/none-epsinf/metrics.parquet"
    result = workflow.run(f"results/tiny/{path}")
    assert result.returncode == 0, result.stdout
    return pl.DataFrame(pl.from_arrow(read_table(workflow.results / path, "metrics")))


def test_a_folder_of_images_with_weights_from_a_file(workflow: Any) -> None:
    folder: Path = workflow.folder
    assert main(["sample-images", str(folder / "photos"), "--images", "40", "--classes", "2", "--size", "8"]) == 0
    save_weights(build("vision_transformer", VIT, (3, 8, 8), 7, seed=0), folder / "own.safetensors")
    vit = {"model": "vision_transformer", "parameters": VIT, "pretrained": "own.safetensors"}
    config = {"datasets": {"photos": {"pool": "images", "root": "photos"}}, "architectures": {"vit": vit}}
    found = metrics(workflow, config, "photos/vit")
    assert found["auc"].is_not_null().all()
    assert (workflow.results / "photos/vit/start.safetensors").exists()


def test_a_table(workflow: Any) -> None:
    random = np.random.default_rng(0)
    frame = {
        "age": random.normal(40, 10, 60),
        "town": random.choice(["Ulm", "Bern"], 60),
        "label": ["low", "high"] * 30,
    }
    pl.DataFrame(frame).write_csv(workflow.folder / "people.csv")
    people = {"pool": "table", "root": "people.csv", "public": 20, "standardise": "private"}
    people |= {"standardise_epsilon": 2, "bounds": {"age": [0, 100]}}
    found = metrics(workflow, {"datasets": {"people": people}, "architectures": {"mlp": {}}}, "people/mlp")
    assert found["members"].max() == 20
    assert table_facts(workflow.results / "pools/people/records.parquet", "records")["release"]["epsilon"] == 2
