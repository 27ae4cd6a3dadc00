"""The wrapped model as a file with `train(task)`."""

from pathlib import Path

from wrapped import ARCHITECTURE, METADATA, SHAPE, fit

from mia_audit.models.architecture import construct
from mia_audit.models.inputs import to_input


def build(shape, classes):
    return construct(ARCHITECTURE, 0)


def inputs(values):
    return to_input(values, METADATA, SHAPE, "cpu")


def train(task):
    training = task.training.model_dump()
    known = task.records, task.labels, task.members
    return fit(*known, task.shadow, training, task.checkpoints, Path("killed-script")).module
