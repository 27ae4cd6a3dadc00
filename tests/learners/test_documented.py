"""The script and the pipeline of docs/learners.md run as they stand there."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.learners import Compute, Records, TrainingTask
from mia_audit.learners.command_line import PREDICT, TRAIN
from mia_audit.learners.kinds.estimator import EstimatorLearner
from mia_audit.learners.kinds.script import ScriptLearner
from mia_audit.learners.script_task import Task

PAGE = (Path(__file__).parents[2] / "docs" / "learners.md").read_text(encoding="utf-8")
PIPELINE, SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


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


def test_placeholders_and_the_task_are_listed_in_full() -> None:
    assert set(re.findall(r"`\{(\w+)\}`", PAGE)) == {*TRAIN, *PREDICT}
    listed = re.findall(r"^\| (`.*?) \|", PAGE.partition("| `task` |")[2].partition("\n\n")[0], re.MULTILINE)
    assert {name.split("(")[0] for row in listed for name in re.findall(r"`([^`]+)`", row)} == set(
        Task.__dataclass_fields__
    )
