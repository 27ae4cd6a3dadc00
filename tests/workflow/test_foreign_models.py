"""Audits of models that are not built in, from the config to the report."""

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mia_audit.storage import read_frame

STRANGER = Path(__file__).with_name("stranger")
"""Files of the built-in model as a script, whose first training is killed in its second epoch."""

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


@pytest.mark.slow
def test_an_audit_of_a_script_ends_in_a_report(workflow: Any) -> None:
    (workflow.folder / "train.py").write_text(SCRIPT)
    workflow.configure(CONFIG)
    done = workflow.run()
    assert done.returncode == 0, done.stdout[-3000:]
    table = pl.read_csv(workflow.results / "tables" / "settings.csv")
    assert table["architecture"].to_list() == ["mine", "mine"]
    found = {row["mechanism"]: row for row in table.iter_rows(named=True)}
    assert found["own"]["accountant"] == "claimed" and found["own"]["delta"] == 1e-3
    assert found["none"]["explanation_signal"].startswith("own:difference")
    page = (workflow.results / "report.html").read_text().replace("\u00a0", " ")
    assert "own at a claimed ε = 2" in page and "what the user's own code claims" in page.replace("&#39;", "'")
    assert "Who bears the risk" in page
    groups = pl.read_csv(workflow.results / "tables" / "groups.csv")
    assert set(groups["architecture"]) == {"mine"} and "mean texture" in set(groups["column"])
    assert (workflow.results / "figures" / "groups_breast_cancer_mine.svg").exists()
    signals = read_frame(workflow.results / "breast_cancer/mine/none-epsinf/signals.parquet", "signals")
    assert signals["confidence"].is_finite().all() and "ixg_l1" not in signals.columns
    claimed = read_frame(workflow.results / "breast_cancer/mine/own-eps2/training.parquet", "training")
    assert set(claimed["epsilon"]) == {2.0} and set(claimed["accountant"]) == {"claimed"}
    (workflow.folder / "train.py").write_text(SCRIPT + "\n# another text\n")
    planned = workflow.planned()
    assert (planned["architecture"], planned["train"], planned["signals"]) == (1, 2, 2), "of the changed script alone"


@pytest.mark.slow
def test_a_script_that_is_killed_and_resumed_has_the_signals_of_the_built_in_model(
    copy_of_finished: Any, tiny: dict[str, Any]
) -> None:
    script = {"model": "script.py", "mechanisms": {"none": {}}}
    copy = copy_of_finished(tiny | {"architectures": tiny["architectures"] | {"script": script}})
    for path in STRANGER.glob("*.py"):
        shutil.copy(path, copy.folder)
    copy.options = ("--cores", "1")
    wanted = "results/tiny/digits/script/none-epsinf/signals.parquet"
    assert copy.run(wanted).returncode == 1
    assert (copy.folder / "killed-script").exists()
    result = copy.run(wanted)
    assert result.returncode == 0, result.stdout[-3000:]
    logs = (copy.results / "logs" / "train").glob("*script*.log")
    assert any("resuming training from this checkpoint" in log.read_text() for log in logs)
    built_in, wrapped = (
        read_frame(copy.results / "digits" / name / "none-epsinf" / "signals.parquet", "signals")
        for name in ("vit", "script")
    )
    assert "ixg_l1" in wrapped.columns and wrapped.equals(built_in.select(wrapped.columns))
