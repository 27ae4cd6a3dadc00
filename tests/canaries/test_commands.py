"""The two stages of the workflow: canaries of a pool, and bounds from one training on them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.canaries.draw import read_asked, read_coins, write_records
from mia_audit.cli import main
from mia_audit.config.load import check_audit
from mia_audit.config.schema import Audit
from mia_audit.config.specs import CanariesSpec, TrainingSpec
from mia_audit.errors import UserError
from mia_audit.learners.protocol import ModelSection, learner_named
from mia_audit.privacy.accounting import epsilon_spent, steps_per_epoch
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


def bounds_of(
    folder: Path, audit: Audit, architecture: tuple[str, ModelSection], mechanism: str, epsilon: str
) -> pl.DataFrame:
    """Draw the canaries of 400 records, and train one setting of an audit on them; return what is written of it."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 400)
    records = random.normal(size=(400, 6)).astype(np.float32) + labels[:, None]
    metadata = {"name": "spots", "kind": "table", "shape": [6], "classes": ["a", "b", "c"], "features": list("uvwxyz")}
    metadata |= {"mean": [0.0] * 6, "std": [1.0] * 6}
    write_records(folder / "pool", records, labels, metadata)
    learner, section = architecture
    write_json(folder / "architecture.json", learner_named(learner).describe(section, metadata))
    drawn = CanariesSpec.from_audit(audit).write(folder)
    words = ["--pool", str(folder / "pool"), "--spec", str(drawn), "--out", str(folder / "canaries")]
    assert main(["canary-draw", *words]) == 0
    spec = TrainingSpec.from_audit(audit, "spots", section.name, mechanism, epsilon).write(folder)
    words = ["--pool", str(folder / "pool"), "--canaries", str(folder / "canaries"), "--spec", str(spec), "--public"]
    words += ["--architecture", str(folder / "architecture.json"), "--out", str(folder / "canaries.csv")]
    assert main(["canary-bounds", *words]) == 0
    return pl.read_csv(folder / "canaries.csv")


def test_from_a_pool_to_bounds(tmp_path: Path) -> None:
    audit = check_audit(config(settings=["spots/tree/none-epsinf"], count=200), "spots.yaml")
    table = bounds_of(tmp_path, audit, ("estimator", ModelSection("tree", TREE)), "none", "inf")
    assert set(read_coins(tmp_path / "canaries").kind) == {"mislabelled"}
    assert len(read_asked(tmp_path / "canaries").labels) == 200
    assert table.columns == ["method", "epsilon", "delta", "confidence", "canaries", "epsilon_spent"]
    assert set(table["canaries"]) == {200} and set(table["epsilon_spent"]) == {math.inf}
    assert float(table.filter(method="one-run")["epsilon"][0]) > 0.3  # a tree learns wrong labels by heart


@pytest.mark.parametrize(("stated", "epsilon"), [({"noise_multiplier": 1.3}, "z1.3"), ({"epsilon": [4]}, "4")])
def test_the_bounds_state_what_their_own_training_spent(tmp_path: Path, stated: dict[str, Any], epsilon: str) -> None:
    changes = {
        "architectures": {"net": {"model": "cnn"}},
        "mechanisms": {"dp-sgd": stated},
        "training": {"epochs": 1, "batch": 50},
    }
    audit = check_audit(config(settings=[f"spots/net/dp-sgd-eps{epsilon}"], count=100) | changes, "spots.yaml")
    architecture = "torch-module", ModelSection("net", "mlp", {"width": 4})  # of the same training, on smaller records
    (spent,) = set(bounds_of(tmp_path, audit, architecture, "dp-sgd", epsilon)["epsilon_spent"])
    records = 300 + int(read_coins(tmp_path / "canaries").member.sum())
    if epsilon == "4":
        assert 3.9 < spent <= 4
    else:
        assert spent == epsilon_spent(1.3, 50 / records, steps_per_epoch(records, 50), 1e-5, "pld")


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
