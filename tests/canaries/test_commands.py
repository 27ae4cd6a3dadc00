"""The two stages of the workflow: canaries of a pool, and bounds from one training on them."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.canaries.draw import read_asked, read_coins, write_records
from mia_audit.cli import main
from mia_audit.config.load import check_audit
from mia_audit.config.specs import CanariesSpec, TrainingSpec
from mia_audit.errors import UserError
from mia_audit.learners.protocol import ModelSection, learner_named
from mia_audit.storage import write_json

TREE = "sklearn.tree:DecisionTreeClassifier"


def config(**canaries: Any) -> dict[str, Any]:
    return {
        "audit": "spots",
        "datasets": {"spots": {"source": "digits"}},
        "architectures": {"tree": {"model": TREE}},
        "mechanisms": {"none": {}},
        "canaries": canaries,
    }


def test_from_a_pool_to_bounds(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 400)
    records = random.normal(size=(400, 6)).astype(np.float32) + labels[:, None]
    metadata = {"name": "spots", "kind": "table", "shape": [6], "classes": ["a", "b", "c"], "features": list("uvwxyz")}
    write_records(tmp_path / "pool", records, labels, metadata)
    section = ModelSection("tree", TREE)
    write_json(tmp_path / "architecture.json", learner_named("estimator").describe(section, metadata))
    audit = check_audit(config(settings=["spots/tree/none-epsinf"], count=200), "spots.yaml")

    drawn = CanariesSpec.from_audit(audit).write(tmp_path)
    words = ["--pool", str(tmp_path / "pool"), "--spec", str(drawn), "--out", str(tmp_path / "canaries")]
    assert main(["canary-draw", *words]) == 0
    assert set(read_coins(tmp_path / "canaries").kind) == {"mislabelled"}
    assert len(read_asked(tmp_path / "canaries").labels) == 200

    spec = TrainingSpec.from_audit(audit, "spots", "tree", "none", "inf").write(tmp_path)
    words = ["--pool", str(tmp_path / "pool"), "--canaries", str(tmp_path / "canaries"), "--spec", str(spec)]
    words += [
        "--architecture",
        str(tmp_path / "architecture.json"),
        "--public",
        "--out",
        str(tmp_path / "canaries.csv"),
    ]
    assert main(["canary-bounds", *words]) == 0
    table = pl.read_csv(tmp_path / "canaries.csv")
    assert table.columns == ["method", "epsilon", "delta", "confidence", "canaries"]
    assert set(table["canaries"]) == {200}
    assert float(table.filter(method="one-run")["epsilon"][0]) > 0.3  # a tree learns wrong labels by heart


@pytest.mark.parametrize(
    ("canaries", "message"),
    [
        ({"settings": ["spots/tree/none-eps8"]}, "did you mean 'spots/tree/none-epsinf'?"),
        ({"kinds": ["wrong"]}, "unknown kind of canaries 'wrong'"),
        ({"count": 5}, "canaries.count: input should be greater than or equal to 20"),
    ],
)
def test_a_mistake_in_the_section_is_named(canaries: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        check_audit(config(**canaries), "spots.yaml")
