"""Stop training after the first epoch, to measure its memory before many models are trained. The checkpoint is kept."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mia_audit.training.task import TrainingTask

Trained = TypeVar("Trained")


class FirstEpochTrained(Exception):
    """The first epoch and one step of the second are done."""


def first_epoch_of(train: Callable[[TrainingTask], Trained]) -> Callable[[TrainingTask], Trained]:
    """Return `train`, changed to raise FirstEpochTrained in the second epoch. A learner without epochs trains the whole model."""

    def run(task: TrainingTask) -> Trained:
        def progress(records: int, epoch: int) -> None:
            if epoch > 1:
                raise FirstEpochTrained
            task.progress(records, epoch)

        return train(replace(task, progress=progress))

    return run
