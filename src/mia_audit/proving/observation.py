"""The observation of one run of a mechanism: numbers, and facts such as exceptions, warnings, shapes and files."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

LARGEST = 1e300
"""The number that replaces infinity. The occurrence of infinity is a fact."""


@dataclass(frozen=True)
class Observation:
    """All numbers of a run's outputs in one vector, and everything else as sentences."""

    numbers: Float[np.ndarray, " p"]
    facts: frozenset[str]

    @property
    def value(self) -> bytes:
        """The bytes of the numbers."""
        return self.numbers.tobytes()


def observe(call: Callable[[], Any]) -> Observation:
    """Run a mechanism and return the observation; an exception is part of it.

    Files that the mechanism leaves in the working folder are facts, by name and size. They are removed (see
    `scratch_folder`).
    """
    numbers: list[np.ndarray] = []
    facts: set[str] = set()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            _flatten("output", call(), numbers, facts)
        except Exception as error:  # any exception is a fact
            facts.add(f"raises {type(error).__name__}: {_first_line(error)}")
    facts.update(f"warns {one.category.__name__}: {_first_line(one.message)}" for one in warned if _is_telling(one))
    if _scratch is not None:
        facts.update(_files(_scratch))
    vector = np.concatenate([part.ravel() for part in numbers]) if numbers else np.zeros(0)
    return Observation(vector, frozenset(facts))


_scratch: Path | None = None


@contextmanager
def scratch_folder() -> Iterator[None]:
    """A context with a new, empty working folder, so that files written by mechanisms are noticed."""
    global _scratch
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        _scratch = Path(folder)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            _scratch = None


def _first_line(said: object) -> str:
    return str(said).partition("\n")[0]


def _files(folder: Path) -> Iterator[str]:
    for entry in list(os.scandir(folder)):
        yield f"file {entry.name} of {entry.stat().st_size} bytes" if entry.is_file() else f"folder {entry.name}"
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            Path(entry).unlink()


def _is_telling(warning: warnings.WarningMessage) -> bool:
    """Return whether a warning may depend on the records, unlike deprecation warnings."""
    return not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning))


def _flatten(name: str, value: Any, numbers: list[np.ndarray], facts: set[str]) -> None:
    """Append the numbers in a value, and add its form to the facts."""
    if (fields := _fields(value)) is not None:
        facts.add(f"{name} has the keys {', '.join(sorted(map(str, fields)))}")
        for key in sorted(fields, key=str):
            _flatten(f"{name}.{key}", fields[key], numbers, facts)
        return
    is_text = isinstance(value, (str, bytes))
    array = None if value is None or is_text else _array(value)
    if array is not None:
        _append(name, array, numbers, facts)
    elif not is_text and (isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim)):
        facts.add(f"{name} has {len(value)} parts")
        for index, part in enumerate(value):
            _flatten(f"{name}[{index}]", part, numbers, facts)
    else:
        facts.add(f"{name} is {value!r}")


def _append(name: str, array: Float[np.ndarray, ...], numbers: list[np.ndarray], facts: set[str]) -> None:
    """Append finite numbers in place of these, and add their shape and the counts of NaN and infinity to the facts."""
    facts.add(f"{name} has the shape {list(array.shape)}")
    for word, where in (("NaN", np.isnan(array)), ("infinite numbers", np.isinf(array))):
        if where.any():
            facts.add(f"{name} has {where.sum()} {word}")
    numbers.append(np.nan_to_num(array, nan=0.0, posinf=LARGEST, neginf=-LARGEST))


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a value by name; None if its parts have no names."""
    if isinstance(value, Mapping):
        return value
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    shown: Any = type(value).__repr__
    if shown is object.__repr__ and hasattr(value, "__dict__"):  # the repr is only an address
        return dict(vars(value))
    return None


def _array(value: Any) -> Float[np.ndarray, ...] | None:
    """Return real or complex numbers, or arrays of these, as float64; None for any other value."""
    if hasattr(value, "detach"):  # the value is a tensor
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return None
    if array.dtype.kind == "O" and all(isinstance(one, (Real, Decimal)) for one in array.flat):
        return np.array([_float(one) for one in array.flat]).reshape(array.shape)
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def _float(number: Any) -> float:
    """Return a number in double precision; infinity if it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, 1 if number > 0 else -1)
    except ValueError:  # a signalling NaN
        return math.nan
