"""A block of models that no one knows: models that are not finite are left out."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.learners.answers import logits_of
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.storage.tables import diverged_models
from mia_audit.training.block import Block, Checkpoints, train_block
from mia_audit.training.section import Training
from mia_audit.training.stored import model_table
from mia_audit.training.task import Records, TrainingTask

COUNT = 6


@dataclass
class Constant:
    """A model that answers every record alike, as a user's model does."""

    margin: float

    def logits(self, records: Records) -> np.ndarray:
        answer = np.tile(np.array([0, self.margin]), (len(records), 1))
        return logits_of(answer, "logits", records, 0, "mine")

    def save(self, folder: Path) -> None:
        (folder / "margin").write_text(str(self.margin))


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Path]:
    """Train a block of three models, whose margins a function of the task says, and return the table of model 1."""
    metadata = {"kind": "table", "shape": [2], "classes": ["a", "b"]}
    values = np.zeros((COUNT, 2), dtype=np.float32)
    records = Records(values, np.arange(COUNT) % 2, metadata, np.arange(COUNT))
    membership = np.arange(3 * COUNT).reshape(COUNT, 3) % 2 == 0

    def run(margin: Callable[[TrainingTask], float], shadows: range = range(3), **options: Any) -> Path:
        columns = membership[:, shadows.start : shadows.stop]
        block = Block(
            0, "toy", "net", "none", "inf", shadows, columns, records, Training(), Mechanism(mechanism="none")
        )
        name = f"{shadows.start}-{shadows.stop - 1}"
        options = {"keep_going": False} | options
        spec, models = options.pop("spec", 0), tmp_path / name
        shutil.rmtree(models, ignore_errors=True)  # models that are there are not trained again
        keys = {shadow: f"{spec}, {shadow}" for shadow in shadows}
        train_block(lambda task: Constant(margin(task)), block, models, keys, Checkpoints(None, 60, {}), **options)
        return model_table(models, 1)

    return run


def by_seed(task: TrainingTask) -> float:
    return task.seed / 2**63


def test_models_whose_outputs_are_not_finite_can_be_left_out(train: Callable[..., Path], tmp_path: Path) -> None:
    def margin(task: TrainingTask) -> float:
        return np.nan if task.shadow == 1 else 1.0

    with pytest.raises(UserError) as caught:
        train(margin)
    message = str(caught.value)
    assert message.startswith("shadow 1 of toy/net/none-epsinf: mine: ") and "record 0 is not finite" in message
    assert "(0, nan)" in message and message.endswith("true to leave such models out")
    assert sorted(path.name for path in (tmp_path / "0-2").iterdir()) == ["shadow-0", "shadow-0.parquet"]
    table = train(margin, keep_going=True)
    assert diverged_models(table, "training") == {1: "returned outputs that are not finite"}
    assert sorted(path.name for path in table.parent.glob("shadow-?")) == ["shadow-0", "shadow-2"]


def test_a_first_model_below_the_floor_stops_the_block_and_stays(train: Callable[..., Path], tmp_path: Path) -> None:
    trained: list[int] = []

    def margin(
        task: TrainingTask,
    ) -> float:  # wrong about the records that model 0 is not trained on, and about no other's
        trained.append(task.shadow)
        return -1.0

    with pytest.raises(UserError) as caught:
        train(margin, floor=0.6, keep_going=True)
    assert trained == [0]
    message = str(caught.value)
    assert message.startswith("shadow 0 of toy/net/none-epsinf: its")
    assert "of 0.000 is below training.floor: 0.6" in message
    assert sorted(path.name for path in (tmp_path / "0-2").iterdir()) == ["shadow-0", "shadow-0.parquet"]
    train(margin)
    assert trained == [0, 0, 1, 2]


def test_the_floor_is_that_of_the_first_model_that_did_not_diverge(train: Callable[..., Path]) -> None:
    def margin(task: TrainingTask) -> float:
        return np.nan if task.shadow == 0 else 1.0

    with pytest.raises(UserError, match=r"shadow 1 of .* is below training.floor"):
        train(margin, floor=0.6, keep_going=True)
