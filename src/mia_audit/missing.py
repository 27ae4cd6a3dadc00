"""Models that an audit goes on without: every table from training to metrics keeps, as a fact, which and why."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mia_audit.storage import table_facts

FACT = "diverged"


def left_out(models: Mapping[str, str]) -> dict[str, Any]:
    """Return the fact that these models, why by number, are missing; no fact where none is."""
    return {FACT: dict(models)} if models else {}


def missing(path: Path, kind: str) -> dict[int, str]:
    """Return which models a table goes without, and why each."""
    return {int(number): why for number, why in table_facts(path, kind).get(FACT, {}).items()}


def missing_of_all(paths: Iterable[Path], kind: str) -> dict[str, Any]:
    """Return the fact that a table joined from others is without the models that these are without."""
    return left_out({str(number): why for path in paths for number, why in missing(path, kind).items()})
