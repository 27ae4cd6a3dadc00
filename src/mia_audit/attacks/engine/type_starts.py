"""The initial types of EM: quantile cells of the records' out mean and, within those, of their shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.hierarchical import BINS, RECORDS_PER_BIN
from mia_audit.signals.columns import slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float, Int

    from mia_audit.signals.columns import Columns
    from mia_audit.signals.name import Cells, Member

LEVELS, SHIFTS = 20, 8
"""Number of quantile cells of the out mean, and of the shift within each of them."""

CELLS_PER_TYPE = 100
"""Smallest number of values (one per record and shadow model) per type; with fewer values there are fewer types."""

LEAST_SPREAD = 1e-6
"""Lower limit of the spread of the shift."""


def first_types(
    signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
) -> Int[np.ndarray, " N"]:
    """Return every record's initial type from the values of some shadow models; matrices are [N records, K models].

    Cells where `counted` is false are left out.
    """
    level, shift = shrunk_means(signal, member, models, counted)
    scale = min(1.0, (len(level) * len(models) / CELLS_PER_TYPE / (LEVELS * SHIFTS)) ** 0.5)
    levels, shifts = max(2, int(LEVELS * scale)), max(2, int(SHIFTS * scale))
    types = np.zeros(len(level), dtype=np.intp)
    for row, records in enumerate(np.array_split(np.argsort(level, kind="stable"), levels)):
        for column, cell in enumerate(np.array_split(records[np.argsort(shift[records], kind="stable")], shifts)):
            types[cell] = row * shifts + column
    return types


def shrunk_means(
    signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Return every record's out mean, and its shift to the in mean, shrunk towards the shift of records with similar means.

    The computation is that of `hierarchical`, but from all of the models, because none of them is a target.
    """
    sides = _Sides(signal, member, models, counted)
    number_in, number_out = sides.numbers
    many_in, many_out = many = np.maximum(sides.numbers, 1)
    number = np.maximum(number_in + number_out, 1)
    means = sides.totals / many
    mean, shift = sides.totals.sum(axis=0) / number, means[0] - means[1]
    pool_in, pool_out = (_pooled(*side) for side in zip(sides.squares(means), sides.numbers, strict=True))
    noise = pool_in / many_in + pool_out / many_out
    both = (number_in > 0) & (number_out > 0)
    parts = np.array_split(np.argsort(mean, kind="stable"), int(np.clip(len(mean) // RECORDS_PER_BIN, 1, BINS)))
    at, expected, spread = np.array(
        [(mean[part].mean(), *_moments(shift, noise, part[both[part]])) for part in parts]
    ).T
    expected, spread = np.interp(mean, at, expected), np.interp(mean, at, spread)
    shrunk = expected + np.where(both, spread / (spread + noise), 0) * (shift - expected)
    return mean - number_in / number * shrunk, shrunk


class _Sides:
    """The sums of a signal over some models with each record and over those without it; cells that do not count are left out."""

    def __init__(
        self, signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
    ) -> None:
        """Add up the values of every record."""
        self._signal, self._member, self._models, self._counted = signal.of(models), member, models, counted
        self.numbers: Float[np.ndarray, "2 N"] = np.empty((2, len(member)))
        """The number of models with each record, and without it."""
        self.totals: Float[np.ndarray, "2 N"] = np.empty((2, len(member)))
        """The sums of their values."""
        for rows, values, sides in self._blocks():
            self.numbers[:, rows] = sides.sum(axis=2)
            self.totals[:, rows] = np.einsum("bs,cbs->cb", values, sides)

    def squares(self, means: Float[np.ndarray, "2 N"]) -> Float[np.ndarray, " 2"]:
        """Return the sums of squared deviations from the means of either side."""
        sums = np.empty((2, len(self._member)))
        for rows, values, sides in self._blocks():
            for side, (mean, inside) in enumerate(zip(means, sides, strict=True)):
                deviations = (values - mean[rows, None]) * inside
                sums[side, rows] = np.einsum("bs,bs->b", deviations, deviations)
        squares: Float[np.ndarray, " 2"] = sums.sum(axis=1)
        return squares

    def _blocks(self) -> Iterator[tuple[slice, Cells, Float[np.ndarray, "2 B S"]]]:
        """Yield blocks of records: their values, and 1 for the cells in and out that count."""
        for rows in slices(0, len(self._member), max(len(self._models), 1)):
            sides = np.empty((2, rows.stop - rows.start, len(self._models)))
            sides[0] = self._member.T[self._models, rows].T
            np.subtract(1, sides[0], out=sides[1])
            if self._counted is not None:
                sides *= self._counted.T[self._models, rows].T
            yield rows, np.ascontiguousarray(self._signal[rows]), sides


def _pooled(squares: float, number: np.ndarray) -> float:
    return float(squares / max(np.maximum(number - 1, 0).sum(), 1))


def _moments(shift: np.ndarray, noise: np.ndarray, records: np.ndarray) -> tuple[float, float]:
    """Return the mean of the records' shifts and their spread beyond noise."""
    if not len(records):
        return 0.0, LEAST_SPREAD
    expected = float(shift[records].mean())
    return expected, max(float(((shift[records] - expected) ** 2 - noise[records]).mean()), LEAST_SPREAD)
