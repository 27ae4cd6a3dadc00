"""training.parquet: the course of a model's training, the ε spent, and the model's accuracy. Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from mia_audit.privacy.catalogue import Terms
from mia_audit.training.task import TrainingTask, loss

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    State = dict[str, Tensor]


SCHEMA = pa.schema(
    {
        **dict.fromkeys(("shadow", "epoch"), pa.int32()),
        **dict.fromkeys(("loss", "train_accuracy", "test_accuracy", "train_loss", "test_loss"), pa.float32()),
        **dict.fromkeys(("records", "steps"), pa.int32()),
        **dict.fromkeys(("epsilon", "epsilon_rdp", "delta", "noise_multiplier", "sampling_rate"), pa.float64()),
        **dict.fromkeys(("accountant", "sampling", "clipping", "noise_mask", "unit"), pa.string()),
        **dict.fromkeys(("persons", "records_per_person"), pa.int32()),
    }
)

OF_MODEL = ("train_accuracy", "test_accuracy", "train_loss", "test_loss", "epsilon", "epsilon_rdp")
"""Columns of the last epoch's row only."""

OF_TERMS = (
    "delta", "noise_multiplier", "sampling_rate", "accountant", "sampling", "clipping", "noise_mask", "unit",
)  # fmt: skip
"""Columns that state the mechanism's terms."""


@dataclass(frozen=True)
class Epoch:
    """The mean loss over the records drawn in one epoch (NaN if there were none), and the steps taken so far."""

    loss: float
    steps: int


@dataclass(frozen=True)
class TrainingReport:
    """The outcome of a model's training. ε is that of the whole training, by the mechanism's accountant and by RDP.

    Train accuracy and loss are over the `records` training records, test accuracy and loss over the pool's other
    records.
    """

    records: int
    epochs: Sequence[Epoch]
    terms: Terms
    epsilon: float
    epsilon_rdp: float
    train_accuracy: float
    test_accuracy: float
    train_loss: float
    test_loss: float
    persons: int | None = field(default=None, kw_only=True)
    """The number of persons in the training set, if the guarantee is for persons."""


@runtime_checkable
class ReportsTraining(Protocol):
    """A model with a report on its training."""

    @property
    def report(self) -> TrainingReport:
        """The report on the model's training."""


def report_from_logits(logits: Float[np.ndarray, "n C"], task: TrainingTask) -> TrainingReport:
    """Return a report for a model without one. It has one epoch of unknown loss, no steps, and the claimed guarantee, if any."""
    claimed = task.mechanism.kind.claimed
    labels, members = task.records.labels, task.members
    hits, losses = logits.argmax(axis=1) == labels, loss(logits, labels)
    return TrainingReport(
        records=int(members.sum()),
        epochs=[Epoch(math.nan, 0)],
        terms=Terms(
            task.mechanism.delta if claimed else 0.0,
            0.0,
            1.0,
            accountant="claimed" if claimed else "none",
            sampling="unknown",
            clipping="unknown" if claimed else "none",
        ),
        epsilon=task.epsilon if claimed else math.inf,
        epsilon_rdp=math.inf,
        train_accuracy=mean(hits[members]),
        test_accuracy=mean(hits[~members]),
        train_loss=mean(losses[members]),
        test_loss=mean(losses[~members]),
    )


def mean(values: np.ndarray) -> float:
    """Return the mean, such as the share of hits; NaN for an empty array."""
    return float(values.mean()) if values.size else math.nan


def training_table(shadow: int, report: TrainingReport) -> pa.Table:
    """Return the rows of one shadow model, one per epoch; only the last has accuracies and ε."""
    count, terms = len(report.epochs), report.terms
    last = {name: getattr(report, name) for name in OF_MODEL}
    same = {name: getattr(terms, name) for name in OF_TERMS}
    same |= {"shadow": shadow, "records": report.records, "persons": report.persons}
    same |= {"records_per_person": terms.records_per_person or None}
    columns: dict[str, list[Any]] = {
        "epoch": list(range(1, count + 1)),
        "loss": [epoch.loss for epoch in report.epochs],
        "steps": [epoch.steps for epoch in report.epochs],
        **{name: [None] * (count - 1) + [value] for name, value in last.items()},
        **{name: [value] * count for name, value in same.items()},
    }
    return pa.table(columns, schema=SCHEMA)
