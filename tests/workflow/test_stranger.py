"""The built-in model, wrapped as a stranger's commands, has the same scores to the last bit; tests/slurm wraps it as a script."""

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
    """An audit of the built-in model beside its wrapping, which is killed once in its second epoch."""
    for path in STRANGER.glob("*.py"):
        shutil.copy(path, workflow.folder)
    vit = tiny["architectures"]["vit"]
    tiny["architectures"] = {
        "vit": {name: vit[name] for name in ("model", "parameters")},
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


@pytest.mark.slow
def test_a_killed_and_resumed_wrapping_has_the_scores_of_the_built_in_model(strangers: Any) -> None:
    folder = strangers.results.relative_to(strangers.folder) / "digits"
    killed = strangers.run("--keep-going", str(folder / "tool" / SETTING / "training.parquet"))
    logged = "".join(path.read_text() for path in (strangers.results / "logs" / "train").glob("*tool*"))
    assert killed.returncode != 0 and "SIGKILL" in killed.stdout + logged
    assert [path.name for path in strangers.folder.glob("killed-*")] == ["killed-tool"]
    done = strangers.run(*(str(folder / name / SETTING / "scores.parquet") for name in ("vit", "tool")))
    assert done.returncode == 0, done.stdout[-3000:]
    logs = [path.read_text() for path in (strangers.results / "logs" / "train").glob("*.log")]
    assert sum("resuming training from this checkpoint" in log for log in logs) == 1
    own, wrapped = (strangers.results / "digits" / name / SETTING for name in ("vit", "tool"))
    known, signals = (read_frame(one / "signals.parquet", "signals") for one in (own, wrapped))
    assert "ixg_l1" in known.columns and "ixg_l1" not in signals.columns
    assert signals.equals(known.select(signals.columns))
    scores = {one.key: one for one in read_scores(own / "scores.parquet")}
    compared = list(read_scores(wrapped / "scores.parquet"))
    assert compared and len(scores) > len(compared)
    for one in compared:
        assert np.array_equal(one.score, scores[one.key].score, equal_nan=True), one.key
