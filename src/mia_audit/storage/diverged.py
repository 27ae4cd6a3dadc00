"""Diverged models, which an audit leaves out: every table from training to metrics lists them in its metadata."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.storage import table_metadata

DIVERGED = "diverged"


def diverged_metadata(models: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata for diverged models: the reason for each, by number. They are empty if no model diverged."""
    return {DIVERGED: dict(models)} if models else {}


def diverged_models(path: Path, kind: str) -> dict[int, str]:
    """Return the reason for each diverged model that a table lacks, by number."""
    listed = table_metadata(path, kind).get(DIVERGED, {})
    if not isinstance(listed, dict) or not all(
        number.isascii() and number.isdigit() and len(number) < 10 and isinstance(reason, str)
        for number, reason in listed.items()
    ):
        raise UserError(f"{path}: metadata '{DIVERGED}': expected the reason for each diverged model, by its number")
    return {int(number): reason for number, reason in listed.items()}


def diverged_of_all(paths: Iterable[Path], kind: str) -> dict[str, Any]:
    """Return the metadata for a table merged from others; the result lists every model that one of these tables lacks."""
    return diverged_metadata(
        {str(number): reason for path in paths for number, reason in diverged_models(path, kind).items()}
    )
