"""Audits of models that are not built in, from the config to the report."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mia_audit.storage import read_frame

SCRIPT = """
import json
import numpy as np


def train(task):
    rows, labels = task.records[task.members], task.labels[task.members]
    noise = 0 if task.delta is None else task.epsilon ** -1
    centres = np.stack([rows[labels == label].mean(axis=0) for label in (0, 1)])
    return centres + noise * np.random.default_rng(task.seed).normal(size=centres.shape)


def predict(model, records):
    return -((records[:, None] - model) ** 2).sum(axis=2)


def explain(model, records, classes):
    return {"difference": records - model[classes]}


def save(model, folder):
    (folder / "centres.json").write_text(json.dumps(model.tolist()))


def load(folder):
    return np.array(json.loads((folder / "centres.json").read_text()))
"""

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {
        "breast_cancer": {
            "records": 80,
            "public": 30,
            "standardise": "public",
            "label_noise": 0.2,
            "groups": ["class", {"mean texture": [18]}],
        }
    },
    "membership": {"models": 6},
    "architectures": {
        "forest": {
            "model": "sklearn.ensemble:RandomForestClassifier",
            "parameters": {"n_estimators": 20},
            "mechanisms": {"none": {}},
        },
        "mine": {"model": "train.py", "outputs": "logits"},
    },
    "mechanisms": {"none": {}, "own": {"epsilon": [2], "delta": 1e-3}},
    "explainers": {"methods": ["own:difference"]},
    "explanation_metrics": {"records": 0},
    "attacks": {"methods": ["threshold", "loss-lira", "l1-lrt"], "likelihoods": ["pooled"]},
    "evaluation": {"fprs": [0.1]},
    "report": {"exposed": 2},
    "compute": {"shadows_per_job": 6, "device": "cpu"},
}


@pytest.fixture
def foreign(workflow: Any) -> Any:
    (workflow.folder / "train.py").write_text(SCRIPT)
    workflow.configure(CONFIG)
    return workflow


def settings(results: Path) -> pl.DataFrame:
    return pl.read_csv(results / "tables" / "settings.csv")


@pytest.mark.slow
def test_an_audit_of_a_forest_and_a_script_ends_in_a_report(foreign: Any) -> None:
    done = foreign.run()
    assert done.returncode == 0, done.stdout[-3000:]
    table = settings(foreign.results).sort("architecture", "epsilon")
    assert table["architecture"].to_list() == ["forest", "mine", "mine"]
    found = {(row["architecture"], row["mechanism"]): row for row in table.iter_rows(named=True)}
    assert found["forest", "none"]["output_auc_mean"] > 0.7
    assert found["mine", "own"]["accountant"] == "claimed" and found["mine", "own"]["delta"] == 1e-3
    assert found["mine", "none"]["explanation_signal"].startswith("own:difference")
    page = (foreign.results / "report.html").read_text().replace("\u00a0", " ")
    assert "own at a claimed ε = 2" in page and "what the user's own code claims" in page.replace("&#39;", "'")
    assert "Who bears the risk" in page
    groups = pl.read_csv(foreign.results / "tables" / "groups.csv")
    assert set(groups["architecture"]) == {"forest", "mine"} and "mean texture" in set(groups["column"])
    assert (foreign.results / "figures" / "groups_breast_cancer_forest.svg").exists()
    signals = read_frame(foreign.results / "breast_cancer/forest/none-epsinf/signals.parquet", "signals")
    assert signals["confidence"].is_finite().all() and "ixg_l1" not in signals.columns
    claimed = read_frame(foreign.results / "breast_cancer/mine/own-eps2/training.parquet", "training")
    assert set(claimed["epsilon"]) == {2.0} and set(claimed["accountant"]) == {"claimed"}
    (foreign.folder / "train.py").write_text(SCRIPT + "\n# another text\n")
    planned = foreign.planned()
    assert (planned["architecture"], planned["train"], planned["signals"]) == (1, 2, 2), "of the changed script alone"


@pytest.mark.slow
def test_a_crash_is_one_line_in_the_log_that_the_workflow_names(foreign: Any) -> None:
    (foreign.folder / "train.py").write_text(SCRIPT.replace("    noise = ", "    nosie = "))
    done = foreign.run("results/tiny/breast_cancer/mine/none-epsinf/training.parquet")
    assert done.returncode != 0
    log = foreign.results / "logs" / "train" / "breast_cancer-mine-none-epsinf-000-005.log"
    assert str(log.relative_to(foreign.folder)) in done.stdout
    last = log.read_text().splitlines()[-1]
    assert last.startswith("mia-audit: architectures.mine: train.py")
    assert "train.py, line 10: NameError: name 'noise'" in last
