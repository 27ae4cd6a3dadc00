"""The initial types of EM: quantile cells of the records' out mean and, within those, of their shift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.hierarchical import BINS, RECORDS_PER_BIN

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.signals.name import Cells, Member

LEVELS, SHIFTS = 20, 8
"""Number of quantile cells of the out mean, and of the shift within each of them."""

CELLS_PER_TYPE = 100
"""Smallest number of values (one per record and shadow model) per type; with fewer values there are fewer types."""

LEAST_SPREAD = 1e-6
"""Lower limit of the spread of the shift."""


def first_types(values: Cells, member: Member, counted: Member | None = None) -> Int[np.ndarray, " N"]:
    """Return every record's initial type from the values of shadow models, [N records, S models].

    Cells where `counted` is false are left out.
    """
    level, shift = shrunk_means(values, member, counted)
    scale = min(1.0, (values.size / CELLS_PER_TYPE / (LEVELS * SHIFTS)) ** 0.5)
    levels, shifts = max(2, int(LEVELS * scale)), max(2, int(SHIFTS * scale))
    types = np.zeros(len(level), dtype=np.intp)
    for row, records in enumerate(np.array_split(np.argsort(level, kind="stable"), levels)):
        for column, cell in enumerate(np.array_split(records[np.argsort(shift[records], kind="stable")], shifts)):
            types[cell] = row * shifts + column
    return types


def shrunk_means(
    values: Cells, member: Member, counted: Member | None = None
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Return every record's out mean, and its shift to the in mean, shrunk towards the shift of records with similar means.

    The computation is that of `hierarchical`, but from all models, because none of them is a target.
    """
    known = np.ones(values.shape) if counted is None else counted.astype(np.float64)
    inside = member * known
    outside = known - inside
    number_in, number_out = inside.sum(axis=1), outside.sum(axis=1)
    many_in, many_out = np.maximum(number_in, 1), np.maximum(number_out, 1)
    number = np.maximum(number_in + number_out, 1)
    total_in, total_out = (values * inside).sum(axis=1), (values * outside).sum(axis=1)
    mean, shift = (total_in + total_out) / number, total_in / many_in - total_out / many_out
    squares = np.square(values - np.where(member, (total_in / many_in)[:, None], (total_out / many_out)[:, None]))
    noise = _pooled(squares * inside, number_in) / many_in + _pooled(squares * outside, number_out) / many_out
    both = (number_in > 0) & (number_out > 0)
    parts = np.array_split(np.argsort(mean, kind="stable"), int(np.clip(len(mean) // RECORDS_PER_BIN, 1, BINS)))
    at, expected, spread = np.array(
        [(mean[part].mean(), *_moments(shift, noise, part[both[part]])) for part in parts]
    ).T
    expected, spread = np.interp(mean, at, expected), np.interp(mean, at, spread)
    shrunk = expected + np.where(both, spread / (spread + noise), 0) * (shift - expected)
    return mean - number_in / number * shrunk, shrunk


def _pooled(squares: Cells, number: np.ndarray) -> float:
    return float(squares.sum() / max(np.maximum(number - 1, 0).sum(), 1))


def _moments(shift: np.ndarray, noise: np.ndarray, records: np.ndarray) -> tuple[float, float]:
    """Return the mean of the records' shifts and their spread beyond noise."""
    if not len(records):
        return 0.0, LEAST_SPREAD
    expected = float(shift[records].mean())
    return expected, max(float(((shift[records] - expected) ** 2 - noise[records]).mean()), LEAST_SPREAD)
