"""The initial types of EM: quantile cells of the records' out mean and, within those, of their shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.hierarchical import BINS, RECORDS_PER_BIN
from mia_audit.signals.columns import slices

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.signals.columns import Columns
    from mia_audit.signals.name import Cells, Member

LEVELS, SHIFTS = 20, 8
"""Number of quantile cells of the out mean, and of the shift within each of them."""

CELLS_PER_TYPE = 100
"""Smallest number of values (one per record and shadow model) per type; with fewer values there are fewer types."""

CELLS = 1 << 16
"""Largest number of cells whose squares are added at a time, if a line has no more."""

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
    (number_in, number_out), (total_in, total_out) = sides.numbers, sides.totals
    many_in, many_out = np.maximum(number_in, 1), np.maximum(number_out, 1)
    number = np.maximum(number_in + number_out, 1)
    mean, shift = (total_in + total_out) / number, total_in / many_in - total_out / many_out
    squares = sides.squares(total_in / many_in, total_out / many_out)
    pool_in, pool_out = (_pooled(*side) for side in zip(squares, sides.numbers, strict=True))
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
    """The sums of a signal over some models, in and out, computed from blocks of records or, if some cells do not count, of models.

    Sums over all cells are added in the order of `np.sum`, so that they do not depend on the size of blocks.
    """

    def __init__(
        self, signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
    ) -> None:
        """Add up the values of every record."""
        self._signal, self._member, self._models, self._counted = signal, member, models, counted
        records = len(member)
        self.numbers: Float[np.ndarray, "2 N"] = np.empty((2, records))
        """The number of models with the record, and without it."""
        self.totals: Float[np.ndarray, "2 N"] = np.empty((2, records))
        for rows in slices(0, records, max(len(models), 1)):
            values, here = self._block(rows, slice(None))
            for side, (number, total) in enumerate(zip(self.numbers, self.totals, strict=True)):
                number[rows] = here[side].sum(axis=1)
                total[rows] = (values * here[side]).sum(axis=1)

    def squares(self, mean_in: Float[np.ndarray, " N"], mean_out: Float[np.ndarray, " N"]) -> tuple[float, float]:
        """Return the sums of squared deviations from the means of either side."""
        if not len(self._models):
            return 0.0, 0.0
        by_models = self._counted is not None
        lines, width = (len(self._models), len(self._member))[:: 1 if by_models else -1]

        def between(start: int, stop: int) -> Float[np.ndarray, " 2"]:
            """Return the sums over the cells from `start` to `stop`, numbered line by line."""
            if stop - start > max(CELLS, width):
                half = (stop - start) // 2
                half -= half % 8  # as in NumPy's pairwise summation
                sums: Float[np.ndarray, " 2"] = between(start, start + half) + between(start + half, stop)
                return sums
            some = slice(start // width, -(-stop // width))
            rows, places = (slice(None), some) if by_models else (some, slice(None))
            values, here = self._block(rows, places)
            inside = self._member.T[self._models[places], rows].T
            squares = np.square(values - np.where(inside, mean_in[rows, None], mean_out[rows, None]))
            cells = slice(start - some.start * width, stop - some.start * width)
            return np.array([(squares * side).ravel("F" if by_models else "C")[cells].sum() for side in here])

        sum_in, sum_out = between(0, lines * width).tolist()
        return sum_in, sum_out

    def _block(self, rows: slice, places: slice) -> tuple[Cells, tuple[Cells, Cells]]:
        """Return values of some records and models, and the masks of those that count, in and out: contiguous by record, or by model."""
        models = self._models[places]
        values, inside = self._signal.of(models)[rows], self._member.T[models, rows].T.astype(np.float64)
        if self._counted is None:
            values, inside = np.ascontiguousarray(values), np.ascontiguousarray(inside)
            return values, (inside, 1 - inside)
        known = self._counted.T[models, rows].T.astype(np.float64)
        inside *= known
        return values, (inside, known - inside)


def _pooled(squares: float, number: np.ndarray) -> float:
    return float(squares / max(np.maximum(number - 1, 0).sum(), 1))


def _moments(shift: np.ndarray, noise: np.ndarray, records: np.ndarray) -> tuple[float, float]:
    """Return the mean of the records' shifts and their spread beyond noise."""
    if not len(records):
        return 0.0, LEAST_SPREAD
    expected = float(shift[records].mean())
    return expected, max(float(((shift[records] - expected) ** 2 - noise[records]).mean()), LEAST_SPREAD)
