"""The accuracy of public pre-training, from which private trainings start; it spends no privacy of the audited records."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_object

PUBLIC = "public.json"
"""The file of a public model's accuracies, in the folder of its data set and architecture."""


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
