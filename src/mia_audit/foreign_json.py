"""JSON that others may have written."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; whatever is wrong with it, nesting that exhausts the stack included, is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; anything else is a ValueError."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not an object with keys")
    return value
