"""Arrays and lists in pickled metadata, read without executing anything.

The pickle's instructions only move values on a stack. An object becomes a `PickledObject` with the name of its class
and the arguments. No class is looked up, and nothing is imported or called.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.errors import UserError

MOST_BYTES = 1 << 30
"""Size in bytes above which a file is not read as metadata."""


@dataclass
class PickledObject:
    """An object that the pickle would create: its class or function by name, the arguments, and its state."""

    name: str
    arguments: Any = None
    state: Any = None


@dataclass(frozen=True)
class StoredObject:
    """All attributes of a stored object and of the objects inside it, by name. Of attributes with the same name, the outermost is kept."""

    path: Path
    names: dict[str, Any] = field(default_factory=dict)

    def integers(self, name: str) -> np.ndarray:
        """Return a list or an array of whole numbers. Raises UserError, which names the file, for anything else."""
        if name not in self.names:
            raise UserError(f"{self.path}: no '{name}'; it has {', '.join(sorted(self.names)[:10])}")
        try:
            values = _array(self.names[name])
        except (
            ValueError,
            LookupError,
            TypeError,
            OverflowError,
            RecursionError,
        ):  # shapes, types and numbers that contradict each other
            values = None
        if values is None or values.dtype.kind not in "iu":
            raise UserError(f"{self.path}: '{name}' is not a list or array of whole numbers")
        return values.ravel().astype(np.int64)


def read_objects(path: Path) -> StoredObject:
    """Return the attributes of a pickled object; UserError for a file that is not one, or that cannot be read without executing it."""
    if path.stat().st_size > MOST_BYTES:
        raise UserError(f"{path}: too large for metadata ({path.stat().st_size} bytes)")
    try:
        whole = _follow(path.read_bytes())
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, OverflowError, RecursionError) as error:
        raise UserError(f"{path}: not an object that can be read without executing it ({first_words(error)})") from None
    names: dict[str, Any] = {}
    _collect(whole, names, depth=0)
    return StoredObject(path, names)


def first_words(error: Exception) -> str:
    """Return an error's text in one short line."""
    return " ".join(str(error).split())[:80] or type(error).__name__


MARK = object()

CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
EMPTY: dict[str, type] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
SKIPPED = {"PROTO", "FRAME"}


def _follow(stream: bytes) -> Any:
    """Follow the instructions of a pickle on a stack, and return the object that it describes."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def marked() -> list[Any]:
        place = len(stack) - 1 - next(i for i, one in enumerate(reversed(stack)) if one is MARK)
        items = stack[place + 1 :]
        del stack[place:]
        return items

    for opcode, argument, _ in pickletools.genops(stream):
        name = opcode.name
        if name in SKIPPED:
            continue
        if name == "STOP":
            return stack.pop()
        if name == "MARK":
            stack.append(MARK)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in TUPLES:
            items = stack[-TUPLES[name] :]
            del stack[-TUPLES[name] :]
            stack.append(tuple(items))
        elif name == "TUPLE":
            stack.append(tuple(marked()))
        elif name in ("LIST", "APPENDS", "ADDITEMS", "FROZENSET"):
            items = marked()
            if name in ("LIST", "FROZENSET"):
                stack.append(items)
            elif isinstance(stack[-1], list):
                stack[-1].extend(items)
        elif name == "APPEND":
            item = stack.pop()
            if isinstance(stack[-1], list):
                stack[-1].append(item)
        elif name in ("DICT", "SETITEMS", "SETITEM"):
            items = marked() if name != "SETITEM" else [stack.pop() for _ in range(2)][::-1]
            if name == "DICT":
                stack.append({})
            if isinstance(stack[-1], dict):
                stack[-1].update(
                    {key: value for key, value in zip(items[::2], items[1::2], strict=True) if isinstance(key, str)}
                )
        elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument or 0)])
        elif name == "GLOBAL":
            stack.append(PickledObject(str(argument).replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            last, first = stack.pop(), stack.pop()
            stack.append(PickledObject(f"{first}.{last}"))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, made = stack.pop(), stack.pop()
            stack.append(PickledObject(made.name, arguments))
        elif name == "NEWOBJ_EX":
            keywords, arguments, made = stack.pop(), stack.pop(), stack.pop()
            stack.append(PickledObject(made.name, (*arguments, keywords)))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].state = state
        elif name in ("POP", "POP_MARK"):
            marked() if name == "POP_MARK" else stack.pop()
        elif name == "DUP":
            stack.append(stack[-1])
        elif argument is not None:
            stack.append(argument)  # numbers, text and bytes
        else:
            raise ValueError(f"instruction {name}")
    raise ValueError("no end")


def _collect(part_of: Any, names: dict[str, Any], depth: int) -> None:
    """Gather the attributes and keys of objects and mappings, outermost first."""
    if depth > 6:
        return
    if isinstance(part_of, PickledObject):
        for part in (part_of.state, part_of.arguments):
            _collect(part, names, depth + 1)
    elif isinstance(part_of, dict):
        for key, value in part_of.items():
            names.setdefault(key, value)
        for value in part_of.values():
            if isinstance(value, (dict, PickledObject)):
                _collect(value, names, depth + 1)
    elif isinstance(part_of, (tuple, list)):
        for value in part_of[:16]:
            if isinstance(value, (dict, PickledObject)):
                _collect(value, names, depth + 1)


def _array(value: Any) -> np.ndarray | None:
    """Return a list of whole numbers, or a NumPy array from its pickled state."""
    if isinstance(value, (list, tuple)):
        return np.array([_number(item) for item in value]) if value else np.zeros(0, dtype=np.int64)
    if not isinstance(value, PickledObject):
        return None
    if value.name.endswith("_reconstruct") and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, kind, fortran, content = value.state
    elif value.name.endswith("_frombuffer") and isinstance(value.arguments, tuple) and len(value.arguments) == 4:
        content, kind, shape, order = value.arguments
        fortran = order == "F"
    else:
        return None
    dtype = _dtype(kind)
    raw = _bytes(content)
    if dtype is None or raw is None:
        return None
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def _number(item: Any) -> int | float:
    if isinstance(item, PickledObject):  # a NumPy scalar: its type and its bytes
        kind, content = item.arguments
        dtype, raw = _dtype(kind), _bytes(content)
        if dtype is not None and raw is not None:
            scalar: int = np.frombuffer(raw, dtype)[0].item()
            return scalar
    return item if isinstance(item, int) else float("nan")


def _bytes(content: Any) -> bytes | None:
    """Return bytes. Old protocols store them as text with the name of an encoding, new ones in a buffer."""
    if isinstance(content, PickledObject) and isinstance(content.arguments, tuple) and content.arguments:
        first = content.arguments[0]
        return first.encode("latin-1") if content.name == "_codecs.encode" and isinstance(first, str) else _bytes(first)
    return bytes(content) if isinstance(content, (bytes, bytearray)) else None


def _dtype(kind: Any) -> np.dtype[Any] | None:
    """Return a NumPy type of numbers from its pickled form."""
    if not (isinstance(kind, PickledObject) and kind.name == "numpy.dtype" and isinstance(kind.arguments, tuple)):
        return None
    text = str(kind.arguments[0])
    order = (
        kind.state[1] if isinstance(kind.state, tuple) and len(kind.state) > 1 and kind.state[1] in ("<", ">") else ""
    )
    return np.dtype(order + text) if text[:1] in "iufb" and text[1:].isdigit() else None
