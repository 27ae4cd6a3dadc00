"""`logistic`: a learner without torch: softmax regression by NumPy, on records flattened to rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Attribution, Compute, ExplanationRequest
from mia_audit.training.task import Records, TrainingTask

COEFFICIENTS = "coefficients.npy"


def design(records: Records) -> np.ndarray:
    """Return rows with a constant last column."""
    rows = records.values.reshape(len(records), -1).astype(np.float64)
    return np.concatenate([rows, np.ones((len(records), 1))], axis=1)


class Model:
    """Coefficients [d + 1, C]."""

    def __init__(self, coefficients: np.ndarray) -> None:
        self.coefficients = coefficients

    def logits(self, records: Records) -> np.ndarray:
        logits: np.ndarray = design(records) @ self.coefficients
        return logits

    def save(self, folder: Path) -> None:
        np.save(folder / COEFFICIENTS, self.coefficients)


class ExplainedLogistic(Model):
    """A model that explains the logit of the predicted class by x ⊙ coefficients."""

    def attributions(self, records: Records, request: ExplanationRequest) -> dict[Attribution, np.ndarray]:
        classes = self.logits(records).argmax(axis=1)
        products = design(records)[:, :-1] * self.coefficients[:-1, classes].T
        return {Attribution(name, "logit"): products for name in request.explainers}


class Logistic:
    """Gradient descent from small random coefficients."""

    def __init__(self, architecture: Mapping[str, Any], compute: Compute) -> None:
        self.environment = {"numpy": np.__version__}
        if architecture["classes"] < 2:
            raise UserError("classes: at least 2 were expected")

    def train(self, task: TrainingTask) -> Model:
        inside = task.records[np.flatnonzero(task.members)]
        rows, labels = design(inside), np.eye(task.records.classes)[inside.labels]
        coefficients = np.random.default_rng(task.seed).normal(0, 0.01, (rows.shape[1], labels.shape[1]))
        for epoch in range(task.training.epochs):
            powers = np.exp(rows @ coefficients)
            gradient = rows.T @ (powers / powers.sum(axis=1, keepdims=True) - labels) / len(rows)
            coefficients = coefficients - task.training.learning_rate * gradient
            task.progress(len(rows), epoch + 1)
        return Model(coefficients)

    def load(self, folder: Path) -> Model:
        path = folder / COEFFICIENTS
        if not path.exists():
            raise UserError(f"{path}: no such file; expected the coefficients of a logistic regression")
        return Model(np.load(path))
