"""The built-in model, wrapped as a stranger's script and as a command, has the same scores to the last bit."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.evaluation.files import read_scores
from mia_audit.storage import read_frame

STRANGER = Path(__file__).with_name("stranger")
SETTING = "none-epsinf"


@pytest.fixture
def strangers(workflow: Any, tiny: dict[str, Any]) -> Any:
    """An audit of the built-in model beside its two wrappings, each of which is killed once in its second epoch."""
    for path in STRANGER.glob("*.py"):
        shutil.copy(path, workflow.folder)
    vit = tiny["architectures"]["vit"]
    tiny["architectures"] = {
        "vit": {name: vit[name] for name in ("model", "parameters")},
        "script": {"model": "script.py"},
        "tool": {
            "train": "python tool.py train {records} {labels} {members} {seed} {checkpoints} {model}",
            "predict": "python tool.py predict {records} {model} {out}",
            "outputs": "logits",
        },
    }
    tiny["datasets"] = {"digits": {"records": 60}}
    tiny["membership"] = {"models": 4}
    tiny["training"] = {"epochs": 3, "batch": 10}
    (workflow.folder / "tool.json").write_text(json.dumps({"models": 4, "training": tiny["training"]}))
    tiny["mechanisms"] = {"none": {}}
    tiny["explainers"] = {"methods": ["ixg"]}
    tiny["explanation_metrics"] = {"records": 0}
    tiny["compute"] = {"shadows_per_job": 4, "micro_batch": 32, "device": "cpu", "checkpoint_seconds": 0}
    workflow.configure(tiny)
    return workflow


def assert_same_scores(results: Path) -> None:
    """Compare signals and scores of the wrappings with those of the built-in model, bit by bit."""
    own = read_frame(results / "digits" / "vit" / SETTING / "signals.parquet", "signals")
    scores = {one.key: one for one in read_scores(results / "digits" / "vit" / SETTING / "scores.parquet")}
    assert "ixg_l1" in own.columns and len(scores) > 2
    for name in ("script", "tool"):
        folder = results / "digits" / name / SETTING
        signals = read_frame(folder / "signals.parquet", "signals")
        assert signals.equals(own.select(signals.columns)), name
        assert ("ixg_l1" in signals.columns) == (name == "script")
        found = list(read_scores(folder / "scores.parquet"))
        assert found, name
        for one in found:
            assert np.array_equal(one.score, scores[one.key].score, equal_nan=True), (name, one.key)


@pytest.mark.slow
def test_a_killed_and_resumed_wrapping_has_the_scores_of_the_built_in_model(strangers: Any) -> None:
    folder = strangers.results.relative_to(strangers.folder) / "digits"
    trained = (str(folder / name / SETTING / "training.parquet") for name in ("script", "tool"))
    killed = strangers.run("--keep-going", *trained)
    assert killed.returncode != 0 and "SIGKILL" in killed.stdout + "".join(
        path.read_text() for path in (strangers.results / "logs" / "train").glob("*tool*")
    )
    assert {path.name for path in strangers.folder.glob("killed-*")} == {"killed-script", "killed-tool"}
    done = strangers.run(*(str(folder / name / SETTING / "scores.parquet") for name in ("vit", "script", "tool")))
    assert done.returncode == 0, done.stdout[-3000:]
    logs = [path.read_text() for path in (strangers.results / "logs" / "train").glob("*.log")]
    assert sum("resuming training from this checkpoint" in log for log in logs) == 2
    assert_same_scores(strangers.results)
