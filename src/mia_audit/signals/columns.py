"""A signal that attacks convert to float64 part by part, because a converted copy of all models would double the memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxtyping import Float, Int

    Cells = Float[np.ndarray, "N K"]
    Scale = Callable[[np.ndarray], np.ndarray]
    Some = int | slice | Int[np.ndarray, " n"]

BLOCK_CELLS, BLOCK_RECORDS = 1 << 15, 1 << 8
"""Cells processed at a time, and the smallest number of records processed at a time."""


class Columns:
    """A signal, [N records, K models], on the scale on which attacks read it, minus an offset per model (0 at first).

    The matrix that it is given is neither copied nor changed. Parts of it are float64.
    """

    def __init__(self, values: Cells, scale: Scale | None = None, models: Int[np.ndarray, " K"] | None = None) -> None:
        """Take the stored values, the function that transforms parts of them to the scale in float64, and the models (all if None)."""
        self._values, self._scale = values, scale
        self._whole = models is None
        self._models = np.arange(values.shape[1]) if models is None else models
        self._offsets: Float[np.ndarray, " K"] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """N and K."""
        return len(self._values), len(self._models)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._values)

    def __getitem__(self, rows: slice) -> Cells:
        """Return some of the records, a new matrix [B, K]."""
        values = self._values[rows] if self._whole else self._values.T[self._models, rows].T
        cells: Cells = values.astype(np.float64) if self._scale is None else self._scale(values)
        if self._offsets is not None:
            cells -= self._offsets
        return cells

    def of(self, models: Int[np.ndarray, " S"]) -> Columns:
        """Return the columns of some models."""
        some = Columns(self._values, self._scale, self._models[models])
        some._offsets = None if self._offsets is None else self._offsets[models]
        return some

    def minus(self, offsets: Float[np.ndarray, " K"]) -> Columns:
        """Return the columns with these offsets."""
        moved = Columns(self._values, self._scale, None if self._whole else self._models)
        moved._offsets = offsets
        return moved

    def centred(self) -> Columns:
        """Return the columns minus each model's median over records."""
        return self.minus(np.array([median(self.at(model)) for model in range(len(self._models))]))

    def at(self, model: Some, record: Some = slice(None)) -> Float[np.ndarray, " n"]:
        """Return new values: those of one model at some of the records, or those at as many models as records."""
        stored = self._values.T[self._models[model], record]
        values: Float[np.ndarray, " n"]
        values = stored.astype(np.float64) if self._scale is None else self._scale(np.ascontiguousarray(stored))
        if self._offsets is not None:
            values -= self._offsets[model]
        return values

    def stored(self) -> Cells:
        """Return the columns without offsets, in float64 or, if there is no scale, as they are stored: the given matrix if possible."""
        values = self._values if self._whole else self._values.T[self._models].T
        return values if self._scale is None else self._scale(values)

    def copied(self) -> Cells:
        """Return what `stored` does as a new matrix, contiguous by model where the given one is."""
        if self._whole and not self._values.flags.f_contiguous:
            return np.array(self.stored())
        made = np.empty(self.shape[::-1], dtype=self._values.dtype if self._scale is None else np.float64)
        for column, model in zip(made, self._models, strict=True):
            values = self._values[:, model]
            column[:] = values if self._scale is None else self._scale(values)
        return made.T


def columns_of(signal: Cells | Columns) -> Columns:
    """Return a signal's columns; a matrix is on its scale."""
    return signal if isinstance(signal, Columns) else Columns(signal)


def median(values: np.ndarray) -> float:
    """Return the median by sorting, which takes half the time of a selection."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half]) if len(values) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2


def slices(start: int, stop: int, models: int) -> Iterator[slice]:
    """Yield slices of similar size, small enough that a block of records stays in the processor's cache."""
    parts = -(-(stop - start) // max(BLOCK_RECORDS, BLOCK_CELLS // models))
    yield from (slice(*edges) for edges in pairwise(np.linspace(start, stop, parts + 1).astype(int).tolist()))
