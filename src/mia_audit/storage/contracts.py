"""The columns and types that a table from another tool must have to be read like an audit's own table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from mia_audit.errors import UserError, suggest

Test = tuple[str, Callable[[pa.DataType], bool]]


def _text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


TEXT: Test = ("text", _text)
WHOLE: Test = ("whole numbers", lambda kind: bool(pa.types.is_integer(kind)))
NUMBER: Test = ("numbers", _number)
TRUTH: Test = ("true or false, or 0 and 1", lambda kind: bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind)))

_ATTACK = dict.fromkeys(("attack", "signal", "likelihood"), TEXT) | {"null_control": TRUTH, "target": WHOLE}

CONTRACTS: dict[str, dict[str, Test]] = {
    "signals": {"shadow": WHOLE, "record": WHOLE, "member": TRUTH},
    "scores": _ATTACK | {"record": WHOLE, "member": TRUTH, "score": NUMBER},
    "metrics": _ATTACK | {"members": WHOLE, "non_members": WHOLE, "auc": NUMBER},
}
"""Required columns by kind of table, for the kinds that may come from other tools (docs/data.md)."""

ID: Test = ("whole numbers or text", lambda kind: _text(kind) or bool(pa.types.is_integer(kind)))

OPTIONAL: dict[str, dict[str, Test]] = {
    "signals": {"person": ID},
    "scores": {"person": ID, "unit": TEXT, "aggregate": TEXT},
}
"""Optional columns by kind of table."""

OTHERS = {"signals": NUMBER}
"""Types of all other columns, for the kinds of table in which they matter."""


def check_columns(path: Path, schema: pa.Schema, kind: str) -> None:
    """Raise a UserError that names the first column of a table that is missing or has the wrong type for its kind."""
    contract = CONTRACTS[kind]
    for name, (words, holds) in contract.items():
        if name not in schema.names:
            raise UserError(f"{path}: no column '{name}' ({words}) for a {kind} table: {suggest(name, schema.names)}")
        if not holds(schema.field(name).type):
            raise UserError(f"{path}: column '{name}' holds {schema.field(name).type}; expected {words}")
    words, holds = OTHERS.get(kind, ("", lambda _: True))
    optional = OPTIONAL.get(kind, {})
    for field in schema:
        if field.name in optional and not optional[field.name][1](field.type):
            raise UserError(f"{path}: column '{field.name}' holds {field.type}; expected {optional[field.name][0]}")
        if field.name not in contract | optional and not holds(field.type):
            raise UserError(
                f"{path}: column '{field.name}' holds {field.type}; expected {words}, or leave the column out"
            )
