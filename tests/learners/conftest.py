"""Records that models of every kind are trained on, and the task of training one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.learners.protocol import ModelSection
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.registry import file_digest
from mia_audit.training.section import Training
from mia_audit.training.task import Records, TrainingTask

COUNT, FEATURES, CLASSES = 60, 4, ["a", "b", "c"]


@pytest.fixture
def table() -> Records:
    """Rows whose class the first column decides, with noise."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(COUNT, FEATURES)).astype(np.float32)
    labels = np.digitize(rows[:, 0] + 0.3 * random.normal(size=COUNT), [-0.5, 0.5])
    metadata = {"kind": "table", "shape": [FEATURES], "classes": CLASSES}
    return Records(rows, labels, metadata, np.arange(COUNT))


@pytest.fixture
def task(table: Records) -> Callable[..., TrainingTask]:
    """Make the task of training a model on every other record of the table."""

    def make(records: Records = table, epsilon: float = float("inf"), **changes: Any) -> TrainingTask:
        mechanism = Mechanism(mechanism="none" if epsilon == float("inf") else "own", delta=1e-4)
        members = np.arange(len(records)) % 2 == 0
        values = {"training": Training(epochs=3, batch=8), "key": (0, "test"), "shadow": 3} | changes
        return TrainingTask(records=records, members=members, mechanism=mechanism, epsilon=epsilon, **values)

    return make


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write a script to a folder where an audit is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return Path(name)

    return write


@pytest.fixture
def described(table: Records) -> Callable[..., dict[str, Any]]:
    """Let a learner describe a model of the table."""

    def describe(learner: Any, model: str = "", records: Records = table, **section: Any) -> dict[str, Any]:
        code = {model: file_digest(model)} if model.endswith(".py") else {}
        asked = ModelSection("mine", model, code=code, **section)
        metadata: dict[str, Any] = learner.describe(asked, records.metadata)
        return metadata

    return describe
