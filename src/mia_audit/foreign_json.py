"""Parse JSON from untrusted files."""

import json
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError for any error, including nesting that exhausts the stack."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError for anything else."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not an object with keys")
    return value


def read_object(path: Path, expected: str) -> dict[str, Any]:
    """Read a file with a JSON object. Raises UserError, which names the file and what was expected, if it is missing or damaged."""
    try:
        return parse_object(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected {expected}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); expected {expected}") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); expected {expected}") from None
