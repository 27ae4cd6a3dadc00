"""Parse JSON from untrusted files."""

import json
from typing import Any


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
