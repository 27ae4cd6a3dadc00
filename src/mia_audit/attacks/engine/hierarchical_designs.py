"""The hierarchical ratio with a further model left out of every score, as some designs (`attacks.design`) and intervals require.

The shifts and densities are those of `hierarchical`, but each score leaves out two models, and the second one may
differ from record to record. So the sums over records are not products of matrices; they are added up cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import Pairs, left_out
from mia_audit.attacks.engine.hierarchical import LEAST, Ordered, bins_of, hierarchical_ratio, prior_of
from mia_audit.attacks.engine.likelihood import PRIOR, Block, Side, blocks, student_tables

if TYPE_CHECKING:
    from mia_audit.attacks.design import Leaving
    from mia_audit.attacks.engine.hierarchical import Centred, Kept
    from mia_audit.signals.name import Cells, Member


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

    def deviations(self) -> Iterator[tuple[Block, Cells, Cells]]:
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

    def _blocks(self) -> Iterator[Block]:
        return blocks(self._signal, self._member, self._leaving)


def _known(block: Block) -> np.ndarray:
    """Return a mask of the cells in which both sides have other models, [B, K]."""
    known: np.ndarray = (block.inside.count > 0) & (block.outside.count > 0)
    return known


def _moments(block: Block, place: np.ndarray) -> np.ndarray:
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
