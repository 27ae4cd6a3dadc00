"""The observation of one run of a mechanism: numbers, and facts such as exceptions, warnings, shapes and files."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    if isinstance(value, Mapping):
        facts.add(f"{name} has the keys {', '.join(sorted(map(str, value)))}")
        for key in sorted(value, key=str):
            _flatten(f"{name}.{key}", value[key], numbers, facts)
        return
    if hasattr(value, "detach"):  # the value is a tensor
        value = value.detach().cpu().double().numpy()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and not _is_numeric(value):
        facts.add(f"{name} has {len(value)} parts")
        for index, part in enumerate(value):
            _flatten(f"{name}[{index}]", part, numbers, facts)
        return
    if value is None or isinstance(value, (str, bytes)):
        facts.add(f"{name} is {value!r}")
        return
    if hasattr(value, "_asdict"):
        _flatten(name, value._asdict(), numbers, facts)
        return
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        facts.add(f"{name} is {value!r}")
        return
    array = array.astype(np.float64)
    facts.add(f"{name} has the shape {list(array.shape)}")
    if np.isfinite(array).all():
        numbers.append(array)
        return
    for word, where in (("NaN", np.isnan(array)), ("infinite numbers", np.isinf(array))):
        if where.any():
            facts.add(f"{name} has {where.sum()} {word}")
    numbers.append(np.nan_to_num(array, nan=0.0, posinf=LARGEST, neginf=-LARGEST))


def _is_numeric(value: Sequence[Any]) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:  # ragged
        return False
