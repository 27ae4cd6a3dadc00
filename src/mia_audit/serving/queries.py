"""A caller's query: JSON of bounded size, converted to one record of the explanation set's shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.foreign_json import parse_object
from mia_audit.serving.desk import Refused

if TYPE_CHECKING:
    from jaxtyping import Num

FIXED, EACH = 1024, 32
"""Largest size of a body in bytes: a constant, and a number per feature."""
KEY = "query"


def largest_body(shape: Sequence[int]) -> int:
    """Return the largest size of a query's body in bytes."""
    return FIXED + EACH * math.prod(shape)


def record_of(body: bytes, shape: Sequence[int], dtype: np.dtype[Any]) -> Num[np.ndarray, " ..."]:
    """Return the record in a body. Raises Refused if the body is not JSON (400), or not numbers of that shape (422)."""
    try:
        value = parse_object(body)
    except ValueError:
        raise Refused(400, f'expected a JSON object: {{"{KEY}": […]}}') from None
    if value.keys() != {KEY}:
        raise Refused(422, f"expected the key '{KEY}' and no other")
    _check(value[KEY], shape, KEY, dtype)
    try:
        record = np.array(value[KEY], dtype=np.float64).reshape(shape)
    except OverflowError:
        raise Refused(422, f"{KEY}: a whole number is too large for a float64") from None
    with np.errstate(over="ignore"):
        return record.astype(dtype)  # infinite values are outside the explainer's domain


def _check(value: Any, shape: Sequence[int], where: str, dtype: np.dtype[Any]) -> None:
    if shape:
        if type(value) is not list or len(value) != shape[0]:
            raise Refused(
                422, f"{where}: expected a list of {shape[0]} items; this part of a query has shape {list(shape)}"
            )
        for index, part in enumerate(value):
            _check(part, shape[1:], f"{where}[{index}]", dtype)
    elif type(value) not in (int, float) or (type(value) is float and not math.isfinite(value)):
        raise Refused(422, f"{where}: expected a finite number")
    elif dtype.kind == "u" and not (value == int(value) and 0 <= value <= np.iinfo(dtype).max):
        raise Refused(422, f"{where}: expected a whole number from 0 to {np.iinfo(dtype).max}")


def schema(shape: Sequence[int]) -> dict[str, Any]:
    """Return the JSON schema of a body."""
    items: dict[str, Any] = {"type": "number"}
    for length in reversed(shape):
        items = {"type": "array", "items": items, "minItems": length, "maxItems": length}
    return {"type": "object", "properties": {KEY: items}, "required": [KEY], "additionalProperties": False}
