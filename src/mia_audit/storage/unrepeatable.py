"""Models that differed when they were trained again from the same seed. Training tables list them in their metadata."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mia_audit.storage.tables import table_metadata

UNREPEATABLE = "unrepeatable"


def unrepeatable_metadata(models: Iterable[int]) -> dict[str, Any]:
    """Return the metadata that lists these models by number; empty if there are none."""
    numbers = sorted(models)
    return {UNREPEATABLE: numbers} if numbers else {}


def unrepeatable_models(path: Path) -> list[int]:
    """Return the numbers of a training table's models that differed when trained again."""
    return [int(number) for number in table_metadata(path, "training").get(UNREPEATABLE, [])]
