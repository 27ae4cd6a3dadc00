"""The likelihood ratio for few shadow models: an empirical-Bayes shift between a record's in and out means.

What is estimated: for every record the mean of its signal in models that trained on it, in models that did not, and the
variances around both. From what: 2 to 20 values a side, which is too few. A record's own difference d of the two means
is mostly noise, and a variance from two values is useless.

Why not the simpler estimates: `per-record` takes all four numbers from the record alone, and needs some 30 models a side;
`pooled` gives all records one variance, and still takes d as it is. Both lose most of the attack with 4 to 16 models.
But records are not strangers to each other: those with similar means r shift similarly. So d is shrunk towards their
expected shift D(r). The shrinkage is strong where the sampling variance of d is large compared with T(r), the spread of
shifts between records; both are functions of r, from bins of records by the method of moments. Variances are shrunk to
the pooled one, and the densities are Student's, because a variance from few values has a wide posterior. Where there are
many models nothing is shrunk, and the ratio is the plain one. A record without models on one side still has a score.

Why it takes so little time: for every target, D and T are learned from all records without that target's values. Leaving
out one of the n values of a side, at distance y from their mean, changes only that side: its mean by −y/(n − 1), its sum
of squares by −y² n/(n − 1). So the factors of a cell have only two values per record: one for targets that are in, one
for targets that are out, and the sums over records are products of a few weights per record with the matrices 1, y and
y². Some designs (`attacks.design`) and all intervals leave a further model out of every score, which may differ from
record to record; these sums are no products of matrices, and are added up cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import Pairs, left_out
from mia_audit.attacks.engine.likelihood import PRIOR, RatioBlock, Side, Span, blocks, student_tables
from mia_audit.signals.name import Columns, columns_of, median, slices

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.attacks.design import Leaving
    from mia_audit.signals.name import Cells, Member

    Kept = Int[np.ndarray, " k"] | None
    Column = Float[np.ndarray, "B 1"]


BINS = 20
"""Quantile bins of r in which D and T are estimated."""

RECORDS_PER_BIN = 50
"""Smallest number of records per bin; smaller pools have fewer bins."""

STEPS = 512
"""Number of points at which D(r) and T(r) are tabulated."""

LEAST = 1e-150
"""Lower limit of variances, so that the ratio of two is finite."""


def hierarchical_ratio(signal: Ordered, member: Member, kept: Kept = None) -> Cells:
    """Score records by log p(x | in) − log p(x | out) with a shrunk shift; a record has a score even if one side has no models.

    `member` is [N records, K models], and so are the scores, in float32 and in the original order of the records. With
    `kept` they are those of some targets.
    """
    shifts = Shifts(signal, member)
    scores = np.empty((len(member), member.shape[1] if kept is None else len(kept)), dtype=np.float32, order="F")
    for records, from_in, from_out in shifts.deviations():
        ratio = _log_ratio(records, from_in, from_out, shifts.pools)
        scores[records.rows] = ratio if kept is None else ratio[:, kept]
    return signal.unsorted(scores)


class Centred:
    """A signal minus each model's median over records, with the span of every record."""

    def __init__(self, columns: Columns, span: Span) -> None:
        """Take the columns with their offsets, [N, K]."""
        self._columns, self.span, self.shape = columns, span, columns.shape

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._columns)

    def __getitem__(self, rows: slice) -> Cells:
        """Return some of the records, a new matrix [B, K]."""
        return self._columns[rows]


class Ordered:
    """A signal's records sorted by their mean, so that bins are slices.

    The signal keeps its own precision. Slices of it are float64, minus each model's median over records.
    """

    def __init__(self, signal: Cells | Columns) -> None:
        """Sort the records of a signal."""
        self._columns = columns_of(signal)
        cells = self._columns.copied()
        self._order = np.argsort(cells.mean(axis=1, dtype=np.float64), kind="stable")
        self._cells = _reordered(cells, self._order, in_place=True)
        self._medians = np.array([[median(column)] for column in self._cells.T])
        self.shape = signal.shape
        spans = [Span.from_cells(self[rows]) for rows in slices(0, *self.shape)]
        self.span = Span(*(np.concatenate(parts) for parts in zip(*spans, strict=True)))

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> Cells:
        """Return some of the sorted records, a new matrix [B, K]."""
        cells: Cells = self._cells.T[:, rows].astype(np.float64)
        cells -= self._medians
        return cells.T

    def original(self) -> Centred:
        """Return the signal with the records in their original order."""
        places = np.argsort(self._order)
        return Centred(self._columns.minus(self._medians[:, 0]), Span(*(part[places] for part in self.span)))

    def reordered(self, matrix: np.ndarray) -> np.ndarray:
        """Return a matrix [N, K] of the same records in this order."""
        return _reordered(matrix, self._order)

    def unsorted(self, values: Cells) -> Cells:
        """Return the matrix with its records in their original order. A matrix that is contiguous by model is overwritten."""
        return _reordered(values, np.argsort(self._order), in_place=True)


class CentredRecords:
    """A block of centred records, with the sums needed to leave each target out of its own side (in or out): [B, K] or [B, 1]."""

    def __init__(self, rows: slice, signal: Ordered | Centred, member: Member) -> None:
        """Centre the records: large offsets cancel catastrophically otherwise."""
        self.values: Cells = signal[rows]
        self.rows, models = rows, signal.shape[1]
        self.here: Cells = member[rows].astype(np.float64)
        """1 where the target trained on the record."""
        self.span = signal.span.rows(rows)
        self.values -= self.span.mean
        self.inside: Column = self.here.sum(axis=1, keepdims=True)
        self.outside: Column = models - self.inside
        total = np.einsum("ij,ij->i", self.values, self.here)[:, None]
        mean_out = -total / np.maximum(self.outside, 1)  # centred values sum to zero
        self.shift: Column = total / np.maximum(self.inside, 1) - mean_out
        """The mean over all in models minus the mean over all out models."""
        own = self.here * -self.shift
        own += self.values
        own -= mean_out
        self.own: Cells = own
        """The target's value minus the mean of its side, which includes the target."""
        self.squares: Cells = own * own
        self.squares_in: Cells = self.squares * self.here
        self.sum_in: Column = self.squares_in.sum(axis=1, keepdims=True)
        self.sum_out: Column = np.maximum(self.squares.sum(axis=1, keepdims=True) - self.sum_in, 0)
        self.others_in, self.others_out = np.maximum(self.inside - 1, 1), np.maximum(self.outside - 1, 1)
        """The number of other models on the target's side (at least 1).

        The first array is for targets that are in, the second for targets that are out.
        """
        self.known_in, self.known_out = (
            np.multiply(own_side > 1, other_side > 0, dtype=np.float64)
            for own_side, other_side in ((self.inside, self.outside), (self.outside, self.inside))
        )
        """1 for records that have other models on both sides, else 0.

        The first array is for targets that are in, the second for targets that are out.
        """

    def by_side(self, inside: np.ndarray, outside: np.ndarray) -> Cells:
        """Select between two arrays [B, 1]: the first for targets that are in, the second for those that are out."""
        values: Cells = self.here * (inside - outside)
        values += outside
        return values


class Shifts:
    """The shrunk shift of every record and target, under one membership."""

    def __init__(self, signal: Ordered, member: Member) -> None:
        """Learn D and T from all records."""
        self._signal: Ordered | Centred = signal
        self._member = signal.reordered(member)
        self.pools, self._prior = _prior(signal, self._member)

    def restore(self, signal: Ordered, member: Member) -> None:
        """Go over the records in their original order from now on, and free the sorted ones."""
        self._signal, self._member = signal.original(), member

    def deviations(self) -> Iterator[tuple[CentredRecords, Cells, Cells]]:
        """Yield blocks of the records, sorted at first, each with the targets' deviations from the in and out means that the shrunk shifts imply."""
        models = self._member.shape[1]
        pools = np.maximum(self.pools, LEAST).T
        for records in _blocks(self._signal, self._member):
            expected, variation = self._prior(records)
            counts_in = np.hstack([records.others_in, np.maximum(records.outside, 1)])
            counts_out = np.hstack([np.maximum(records.inside, 1), records.others_out])
            noise = pools @ (1 / counts_out).T  # transposed: models are contiguous
            noise += records.here.T * (pools @ (1 / counts_in - 1 / counts_out).T)
            noise += variation.T
            weight = np.divide(variation, noise.T, out=variation)
            if not (records.known_in.all() and records.known_out.all()):
                weight *= records.by_side(records.known_in, records.known_out)
            deviation = records.by_side(-1 / records.others_in, 1 / records.others_out)
            deviation *= records.own
            deviation += records.shift
            deviation -= expected
            deviation *= weight
            deviation += expected
            # The other models' values sum to −x: the centred values of a record sum to zero.
            from_out = records.inside - records.here
            from_out *= deviation
            from_out += models * records.values
            from_out /= models - 1
            yield records, np.subtract(from_out, deviation, out=deviation), from_out


def _reordered(matrix: np.ndarray, order: np.ndarray, in_place: bool = False) -> np.ndarray:
    """Return a matrix [N, K] with its records in another order, copied model by model so that a column stays in the cache.

    The result is contiguous by model. With `in_place`, a matrix that is contiguous by model is overwritten.
    """
    in_place &= matrix.flags.f_contiguous
    made = matrix.T if in_place else np.empty((matrix.shape[1], len(order)), dtype=matrix.dtype)
    for column, values in zip(made, matrix.T, strict=True):
        source = values.copy() if in_place else values
        np.take(source, order, out=column, mode="clip")  # the other modes make a copy first
    return made.T


def _blocks(
    signal: Ordered | Centred, member: Member, start: int = 0, stop: int | None = None
) -> Iterator[CentredRecords]:
    """Yield the records from `start` to `stop`, block by block."""
    for rows in slices(start, len(member) if stop is None else stop, member.shape[1]):
        yield CentredRecords(rows, signal, member)


def _log_ratio(records: CentredRecords, from_in: Cells, from_out: Cells, pools: np.ndarray) -> Cells:
    """Return the log ratio of two Student-t densities, as in `shrunk`, at deviations from means estimated by all other models.

    The deviations are overwritten.
    """
    models = from_in.shape[1]
    wider = models / (models - 1)
    constants, exponents = student_tables(models)
    floor = PRIOR * np.maximum(records.span.floor, LEAST)
    floored = (wider * PRIOR * pools.min() < floor).any()
    spread_in = records.squares_in * (-wider * records.inside / records.others_in)
    spread_out = records.squares - records.squares_in
    spread_out *= -wider * records.outside / records.others_out
    sides = ((spread_in, records.sum_in, from_in), (spread_out, records.sum_out, from_out))
    for (spread, total, distance), pool in zip(sides, pools, strict=True):
        spread += wider * total
        spread += wider * PRIOR * pool
        if floored:
            np.maximum(spread, floor, out=spread)
        np.multiply(distance, distance, out=distance)
        distance /= spread
        distance += 1
        np.log(distance, out=distance)
    inside, outside = records.inside.astype(np.intp), records.outside.astype(np.intp)
    fewer_in, fewer_out = np.maximum(inside - 1, 0), np.maximum(outside - 1, 0)
    from_in *= records.by_side(exponents[fewer_in], exponents[inside])
    from_out *= records.by_side(exponents[outside], exponents[fewer_out])
    ratio: Cells = np.divide(spread_out, spread_in, out=spread_out)
    np.log(ratio, out=ratio)
    ratio *= 0.5
    ratio += from_in
    ratio -= from_out
    ratio += records.by_side(constants[fewer_in] - constants[outside], constants[inside] - constants[fewer_out])
    ratio[records.span.agreed] = 0
    return ratio


class Curves:
    """Functions of r, for every target: piecewise linear, and tabulated on an even grid for fast look-up."""

    def __init__(self, means: np.ndarray, points: np.ndarray, known: np.ndarray, *functions: np.ndarray) -> None:
        """Tabulate each function by interpolating its `known` values at `points`, [bins, K]; `means` give the range of r."""
        low, high = np.quantile(means, [0.005, 0.995])
        self._low, self._width = low, (high - low) / STEPS or 1.0
        self._models = known.shape[1]
        grid = low + (np.arange(STEPS) + 0.5) * self._width
        self._tables = np.zeros((len(functions), self._models, STEPS))
        for target in np.flatnonzero(known.any(axis=0)):
            here = known[:, target]
            for table, values in zip(self._tables, functions, strict=True):
                table[target] = np.interp(grid, points[here], values[here, target])

    def __call__(self, records: CentredRecords) -> list[Cells]:
        """Return every function at r, a record's mean over the models other than the target, [B, K] each."""
        span, slope = records.span, -1 / (self._models - 1) / self._width
        start = (span.mean - self._low) / self._width
        place = records.values * slope
        place += start
        if (start + slope * span.high).min() < 0 or (start + slope * span.low).max() >= STEPS:
            np.clip(place, 0, STEPS - 1, out=place)
        return self._tabulated(place)

    def at(self, means: Cells) -> list[Cells]:
        """Return every function at the given means r over the other models, [B, K] each."""
        return self._tabulated(np.clip((means - self._low) / self._width, 0, STEPS - 1))

    def _tabulated(self, place: Cells) -> list[Cells]:
        step = place.astype(np.intp)
        step += STEPS * np.arange(self._models)
        return [table.take(step.T, mode="clip").T for table in self._tables]  # transposed: models are contiguous


def _prior(signal: Ordered, member: Member) -> tuple[np.ndarray, Curves]:
    """Return the pooled variances in and out, [2, K], and the functions D and T, by the method of moments."""
    bins = bins_of(signal)
    models = member.shape[1]
    moments = np.zeros((5, len(bins), models))
    squares, freedom = np.zeros((2, models)), np.zeros((2, models))
    for index, rows in enumerate(bins):
        for records in _blocks(signal, member, rows.start, rows.stop):
            sums, side_squares, side_freedom = tally(records)
            moments[:, index] += sums
            squares += side_squares
            freedom += side_freedom
    return prior_of(signal, bins, moments, squares, freedom)


def bins_of(signal: Ordered) -> list[slice]:
    """Return the quantile bins of the sorted records."""
    records = len(signal)
    edges = np.array_split(np.arange(records), int(np.clip(records // RECORDS_PER_BIN, 1, BINS)))
    return [slice(int(rows[0]), int(rows[-1]) + 1) for rows in edges]


def prior_of(
    signal: Ordered, bins: Sequence[slice], moments: np.ndarray, squares: np.ndarray, freedom: np.ndarray
) -> tuple[np.ndarray, Curves]:
    """Return the pooled variances in and out, [2, K], and D and T, from the sums of `tally`. `moments` are the sums per bin, [5, bins, K]."""
    count, shift, square, over_in, over_out = moments
    means = signal.span.mean[:, 0]
    pools = np.maximum(squares, 0) / np.maximum(freedom, 1)
    known = count > 0
    for total in (shift, square, over_in, over_out):
        total /= np.maximum(count, 1)
    spread = np.maximum(square - shift**2 - pools[0] * over_in - pools[1] * over_out, 0)
    centres = np.array([means[rows].mean() for rows in bins])
    return pools, Curves(means, centres, known, shift, spread)


def tally(records: CentredRecords) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays of sums over the block's records for every target, from all other models.

    The first, [5, K], is over records with other models on both sides: their number, Σd, Σd², Σ1/n_in and Σ1/n_out. The
    second, [2, K], has the sums of squared deviations in and out, and the third, [2, K], their degrees of freedom.
    """
    shift, known_in, known_out = records.shift, records.known_in, records.known_out
    step_in, step_out = known_in / records.others_in, -(known_out / records.others_out)  # d is shift − step · own
    many_in, many_out = np.maximum(records.inside, 1), np.maximum(records.outside, 1)
    number, shifts, shift_squares, over_in, over_out, freedom_in, freedom_out = _summed(
        np.ones_like(shift),
        records.here,
        (known_in, known_out),
        (known_in * shift, known_out * shift),
        (known_in * shift**2, known_out * shift**2),
        (known_in / records.others_in, known_out / many_in),
        (known_in / many_out, known_out / records.others_out),
        (np.maximum(records.inside - 2, 0), np.maximum(records.inside - 1, 0)),
        (np.maximum(records.outside - 1, 0), np.maximum(records.outside - 2, 0)),
    )
    own_in = records.here * records.own
    steps, products = _summed(records.own, own_in, (step_in, step_out), (shift * step_in, shift * step_out))
    none = np.zeros_like(shift)
    step_squares, left_in, left_out = _summed(
        records.squares,
        records.squares_in,
        (step_in**2, step_out**2),
        (records.inside / records.others_in, none),
        (none, records.outside / records.others_out),
    )
    moments = np.stack([number, shifts - steps, shift_squares - 2 * products + step_squares, over_in, over_out])
    squares = np.stack([records.sum_in.sum() - left_in, records.sum_out.sum() - left_out])
    return moments, squares, np.stack([freedom_in, freedom_out])


def _summed(values: np.ndarray, inside: Cells, *weights: tuple[Column, Column]) -> np.ndarray:
    """Return, for every pair of weights, the sums over records of weight × value, [pairs, K].

    The first weight of a pair applies where the target is in, the second where it is out; `inside` equals `values` where
    the target is in, and 0 elsewhere.
    """
    of_in, of_out = (np.hstack(side).T for side in zip(*weights, strict=True))
    return np.asarray((of_in - of_out) @ inside + of_out @ values)


def ratio(signal: Ordered, member: Member, pairs: Pairs | None = None, kept: Kept = None) -> Cells:
    """Score records by log p(x | in) − log p(x | out) with a shrunk shift, under any design of the membership.

    The scores are [N, K], or with `pairs` [N, P], one column per pair. With `kept` only these columns are returned.
    """
    leaving = pairs or left_out(member)
    if leaving is None:
        return hierarchical_ratio(signal, member, kept)
    shifts = DesignShifts(signal, member, leaving)
    columns = shifts.pools.shape[1] if kept is None else len(kept)
    scores = np.empty((len(member), columns), dtype=np.float32, order="F")
    for block, from_in, from_out in shifts.deviations():
        floor = PRIOR * np.maximum(block.span.floor, LEAST)
        wider = 1 + 1 / np.maximum(block.inside.count + block.outside.count, 1)
        score = _log_density(block.inside, from_in, shifts.pools[0], wider, floor)
        score -= _log_density(block.outside, from_out, shifts.pools[1], wider, floor)
        score[block.span.agreed] = 0
        scores[block.rows] = score if kept is None else score[:, kept]
    return signal.unsorted(scores)


class DesignShifts:
    """The shrunk shift of every record and target, with further models left out."""

    def __init__(self, signal: Ordered, member: Member, leaving: Leaving) -> None:
        """Learn D and T from all records."""
        self._signal: Ordered | Centred = signal
        self._member = signal.reordered(member)
        self._given = leaving
        self._leaving = leaving if isinstance(leaving, Pairs) or leaving is None else signal.reordered(leaving)
        bins, models = bins_of(signal), member.shape[1]
        columns = len(leaving) if isinstance(leaving, Pairs) else models
        moments = np.zeros((5, len(bins), columns))
        squares, freedom, whole = np.zeros((2, columns)), np.zeros((2, columns)), 0.0
        place = np.repeat(np.arange(len(bins)), [rows.stop - rows.start for rows in bins])
        for block in self._blocks():
            moments[:, place[block.rows][0] : place[block.rows][-1] + 1] += _moments(block, place[block.rows])
            whole += float(np.square(block.every).sum())
            for side, one in enumerate((block.inside, block.outside)):
                squares[side] += one.squares.sum(axis=0)
                freedom[side] += np.maximum(one.count - 1, 0).sum(axis=0)
        # Where no record has two other models on a side, use the variance over all models, which does not depend on membership.
        none = freedom == 0
        squares[none], freedom[none] = whole, len(member) * (models - 1)
        self.pools, self._prior = prior_of(signal, bins, moments, squares, freedom)

    def restore(self, signal: Ordered, member: Member) -> None:
        """Go over the records in their original order from now on, and free the sorted ones."""
        self._signal, self._member, self._leaving = signal.original(), member, self._given

    def deviations(self) -> Iterator[tuple[RatioBlock, Cells, Cells]]:
        """Yield blocks of the records, sorted at first, each with the targets' deviations from the in and out means that the shrunk shifts imply."""
        pools = np.maximum(self.pools, LEAST)
        for block in self._blocks():
            inside, outside = block.inside, block.outside
            number = np.maximum(inside.count + outside.count, 1)
            total = inside.count * (block.values - inside.deviation) + outside.count * (
                block.values - outside.deviation
            )
            expected, variation = self._prior.at(block.span.mean + total / number)
            noise = pools[0] / np.maximum(inside.count, 1) + pools[1] / np.maximum(outside.count, 1)
            weight = variation / (variation + noise) * _known(block)
            shift = expected + weight * (outside.deviation - inside.deviation - expected)
            from_out = block.values - (total - inside.count * shift) / number
            yield block, from_out - shift, from_out

    def _blocks(self) -> Iterator[RatioBlock]:
        return blocks(self._signal, self._member, self._leaving)


def _known(block: RatioBlock) -> np.ndarray:
    """Return a mask of the cells in which both sides have other models, [B, K]."""
    return np.asarray((block.inside.count > 0) & (block.outside.count > 0))


def _moments(block: RatioBlock, place: np.ndarray) -> np.ndarray:
    """Return sums over those records of each bin that have other models on both sides, [5, bins, columns].

    The sums are the number of these records, Σd, Σd², Σ1/n_in and Σ1/n_out; `place` is the bin of every record, ascending.
    """
    known = _known(block).astype(np.float64)
    shift = (block.outside.deviation - block.inside.deviation) * known
    over = (known / np.maximum(side.count, 1) for side in (block.inside, block.outside))
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    return np.stack([np.add.reduceat(part, starts, axis=0) for part in (known, shift, shift * shift, *over)])


def _log_density(side: Side, deviation: Cells, pool: np.ndarray, wider: Cells, floor: np.ndarray) -> Cells:
    """Return the Student-t log density, as in `shrunk`, at deviations from a mean estimated by all other models, [B, K]."""
    constants, exponents = student_tables(side.models)
    spread = np.maximum(wider * (side.squares + PRIOR * pool), floor)
    density: Cells = np.log(1 + deviation**2 / spread) * side.by_count(exponents)
    density += side.by_count(constants)
    density -= 0.5 * np.log(spread)
    return density
