"""Models whose repeated training with the same seed had another outcome: training tables list them in their metadata."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mia_audit.storage.tables import table_metadata

UNREPEATABLE = "unrepeatable"


def unrepeatable_metadata(models: Iterable[int]) -> dict[str, Any]:
    """Return the metadata for the numbers of such models; empty where there are none."""
    numbers = sorted(models)
    return {UNREPEATABLE: numbers} if numbers else {}


def unrepeatable_models(path: Path) -> list[int]:
    """Return the numbers of a training table's models that had another outcome when trained again."""
    return [int(number) for number in table_metadata(path, "training").get(UNREPEATABLE, [])]
