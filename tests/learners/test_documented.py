"""The script and the pipeline of docs/how-to/models.md run as they stand there."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.learners.estimators import EstimatorLearner
from mia_audit.learners.protocol import Compute
from mia_audit.learners.script import ScriptLearner, ScriptTask
from mia_audit.training.task import Records, TrainingTask

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
PIPELINE, SCRIPT, PROGRAMS, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("epsilon", [float("inf"), 8.0])
@pytest.mark.filterwarnings("ignore")  # Opacus names its own limits
def test_the_script(
    epsilon: float,
    script: Callable[..., Path],
    described: Callable[..., dict[str, Any]],
    task: Callable[..., TrainingTask],
    table: Records,
    tmp_path: Path,
) -> None:
    path = str(script(SCRIPT))
    learner = ScriptLearner(described(ScriptLearner, path, parameters={"width": 8}), Compute("cpu"))
    trained, again = learner.train(task(epsilon=epsilon)), learner.train(task(epsilon=epsilon))
    trained.save(tmp_path)
    logits = learner.load(tmp_path).logits(table)
    np.testing.assert_array_equal(logits, trained.logits(table))
    np.testing.assert_array_equal(logits, again.logits(table))


def test_the_pipeline(
    script: Callable[..., Path],
    described: Callable[..., dict[str, Any]],
    task: Callable[..., TrainingTask],
    table: Records,
) -> None:
    script(PIPELINE, "pipeline.py")
    learner = EstimatorLearner(described(EstimatorLearner, "pipeline.py:scaled", parameters={"C": 0.1}), Compute())
    assert learner.train(task()).estimator[-1].C == 0.1


FIT = """
import sys, numpy as np
rows, labels = (np.load(sys.argv[1] + f"/{name}.npy") for name in ("records", "labels"))
np.save(open(sys.argv[1] + "/model", "wb"), np.stack([rows[labels == one].mean(axis=0) for one in range(3)]))
"""
ASK = """
import sys, numpy as np
rows, centres = (np.load(sys.argv[1] + name) for name in ("/records.npy", "/model"))
np.save(sys.argv[1] + "/outputs.npy", -((rows[:, None] - centres) ** 2).sum(axis=2))
"""


def test_the_script_that_calls_programs(
    script: Callable[..., Path],
    described: Callable[..., dict[str, Any]],
    task: Callable[..., TrainingTask],
    table: Records,
    tmp_path: Path,
) -> None:
    fit, ask = script(FIT, "fit.py"), script(ASK, "ask.py")
    text = PROGRAMS.replace('"Rscript"', repr(sys.executable)).replace("fit.R", str(fit)).replace("ask.R", str(ask))
    learner = ScriptLearner(described(ScriptLearner, str(script(text)), outputs="logits"), Compute("cpu"))
    trained, member = learner.train(task()), task().members
    (tmp_path / "stored").mkdir()
    trained.save(tmp_path / "stored")
    logits = learner.load(tmp_path / "stored").logits(table)
    np.testing.assert_array_equal(logits, trained.logits(table))
    centres = [table.values[member & (table.labels == one)].mean(axis=0) for one in range(3)]
    np.testing.assert_allclose(logits[0], [-((table.values[0] - one) ** 2).sum() for one in centres], rtol=1e-5)


def test_the_task_is_listed_in_full() -> None:
    listed = re.findall(r"^\| (`.*?) \|", PAGE.partition("| `task` |")[2].partition("\n\n")[0], re.MULTILINE)
    assert {name.split("(")[0] for row in listed for name in re.findall(r"`([^`]+)`", row)} == set(
        ScriptTask.__dataclass_fields__
    )
