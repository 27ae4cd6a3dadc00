"""Accuracies that a model has to beat: that of guessing, and that of the public model from which its training started."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_object
from mia_audit.storage import read_table

PUBLIC = "public.json"
"""The file of a public model's accuracies, in the folder of its data set and architecture."""


class Guessing(NamedTuple):
    """The accuracy of always predicting the most frequent class, and the mean loss (nats) of predicting the classes' shares."""

    accuracy: float
    loss: float


def read_guessing(path: Path) -> Guessing | None:
    """Return what guessing achieves on the records of a pool's records.parquet; None where there is no such file."""
    if not path.exists():
        return None
    counts = np.unique(read_table(path, "records", ["label"])["label"].to_numpy(), return_counts=True)[1]
    shares = counts / counts.sum()
    return Guessing(float(shares.max()), float(-(shares * np.log(shares)).sum()))


class Start(NamedTuple):
    """Accuracy and loss of a public model on the audited records, none of which it was trained on."""

    accuracy: float
    loss: float
    public_records: int


def read_start(path: Path) -> Start | None:
    """Read a public model's accuracy and loss; None if there is no such model, or it was not measured on audited records.

    Raises UserError for a damaged file.
    """
    try:
        values = parse_object(path.read_text(encoding="utf-8"))
        if "test_accuracy" not in values:
            return None
        return Start(float(values["test_accuracy"]), float(values["test_loss"]), int(values["records"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged ({type(error).__name__}); expected what public pre-training wrote") from None
