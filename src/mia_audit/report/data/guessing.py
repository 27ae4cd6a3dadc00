"""Accuracy and loss of guessing without reading a record: the baseline that a model has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting


@dataclass(frozen=True)
class Guessing:
    """The accuracy of always predicting the most frequent class, and the mean loss (nats) of predicting the classes' shares."""

    accuracy: float
    loss: float


def guessing(results: Results, setting: Setting) -> Guessing | None:
    """Return what guessing achieves on a setting's audited records; None where there is no pool."""
    from mia_audit.storage import read_table

    path = results.root / "pools" / setting.pool / "records.parquet"
    if not path.exists():
        return None
    counts = np.unique(read_table(path, "records", ["label"])["label"].to_numpy(), return_counts=True)[1]
    shares = counts / counts.sum()
    return Guessing(float(shares.max()), float(-(shares * np.log(shares)).sum()))
