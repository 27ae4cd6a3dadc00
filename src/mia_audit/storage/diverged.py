"""Diverged models, which an audit leaves out: every table from training to metrics lists them in its metadata."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.storage import table_metadata

DIVERGED = "diverged"


def diverged_metadata(models: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata for diverged models: the reason for each, by its number; empty if there are none."""
    return {DIVERGED: dict(models)} if models else {}


def diverged_models(path: Path, kind: str) -> dict[int, str]:
    """Return the diverged models that a table lacks, by number, with the reason for each."""
    listed = table_metadata(path, kind).get(DIVERGED, {})
    if not isinstance(listed, dict) or not all(
        number.isascii() and number.isdigit() and len(number) < 10 and isinstance(reason, str)
        for number, reason in listed.items()
    ):
        raise UserError(f"{path}: metadata '{DIVERGED}': expected the reasons of diverged models by their numbers")
    return {int(number): reason for number, reason in listed.items()}


def diverged_of_all(paths: Iterable[Path], kind: str) -> dict[str, Any]:
    """Return the metadata for a table merged from others; it lacks every model that one of them lacks."""
    return diverged_metadata(
        {str(number): reason for path in paths for number, reason in diverged_models(path, kind).items()}
    )
