"""The hierarchical ratio under designs that ask for a further model to be left out of every score (`attacks.design`).

The same shifts and densities as in `hierarchical`, where two models are missing instead of one, record by record: the sums
over records have no closed form in products of matrices then, and are added up cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import left_out
from mia_audit.attacks.engine.hierarchical import LEAST, Ordered, bins_of, hierarchical_ratio, prior_of
from mia_audit.attacks.engine.likelihood import PRIOR, Block, Side, blocks, student_tables

if TYPE_CHECKING:
    from mia_audit.attacks.design import Partners
    from mia_audit.signals.name import Cells, Member


def ratio(signal: Ordered, member: Member) -> Cells:
    """Score records by log p(x | in) − log p(x | out) with a shrunk shift, whatever the membership's design, [N, K]."""
    partners = left_out(member)
    if partners is None:
        return hierarchical_ratio(signal, member)
    shifts = DesignShifts(signal, member, partners)
    scores = np.empty(member.shape, dtype=np.float32, order="F")
    for block, from_in, from_out in shifts.deviations():
        floor = PRIOR * np.maximum(block.span.floor, LEAST)
        wider = 1 + 1 / np.maximum(block.inside.count + block.outside.count, 1)
        score = _log_density(block.inside, from_in, shifts.pools[0], wider, floor)
        score -= _log_density(block.outside, from_out, shifts.pools[1], wider, floor)
        score[block.span.agreed] = 0
        scores[block.rows] = score
    return signal.unsorted(scores)


class DesignShifts:
    """The shrunk shift of every record and target, under a membership with further models left out."""

    def __init__(self, signal: Ordered, member: Member, partners: Partners) -> None:
        """Learn D and T from all records."""
        self._values = signal.values
        self._member, self._partners = signal.reordered(member), signal.reordered(partners)
        bins, models = bins_of(signal), member.shape[1]
        moments = np.zeros((5, len(bins), models))
        squares, freedom, whole = np.zeros((2, models)), np.zeros((2, models)), 0.0
        for index, rows in enumerate(bins):
            for block in self._blocks(rows.start, rows.stop):
                moments[:, index] += _moments(block)
                whole += float(np.square(block.values).sum())
                for side, one in enumerate((block.inside, block.outside)):
                    squares[side] += one.squares.sum(axis=0)
                    freedom[side] += np.maximum(one.count - 1, 0).sum(axis=0)
        none = (
            freedom == 0
        )  # no record has two other models on a side: the variance over all models knows no membership
        squares[none], freedom[none] = whole, len(member) * (models - 1)
        self.pools, self._prior = prior_of(signal, bins, moments, squares, freedom)

    def deviations(self) -> Iterator[tuple[Block, Cells, Cells]]:
        """Yield, block by sorted block, the targets' deviations from the in and the out mean that the shrunk shift implies."""
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

    def _blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        return blocks(self._values, self._member, self._partners, start, stop)


def _known(block: Block) -> np.ndarray:
    """Return where both sides have other models, [B, K]."""
    known: np.ndarray = (block.inside.count > 0) & (block.outside.count > 0)
    return known


def _moments(block: Block) -> np.ndarray:
    """Return sums over the records with other models on both sides: their number, Σd, Σd², Σ1/n_in and Σ1/n_out, [5, K]."""
    known = _known(block)
    shift = np.where(known, block.outside.deviation - block.inside.deviation, 0)
    over = (known / np.maximum(side.count, 1) for side in (block.inside, block.outside))
    return np.stack([part.sum(axis=0) for part in (known, shift, shift**2, *over)])


def _log_density(side: Side, deviation: Cells, pool: np.ndarray, wider: Cells, floor: np.ndarray) -> Cells:
    """Return the Student-t log density, as of `shrunk`, at deviations from a mean that all other models estimate, [B, K]."""
    constants, exponents = student_tables(side.count.shape[1])
    spread = np.maximum(wider * (side.squares + PRIOR * pool), floor)
    density: Cells = np.log1p(deviation**2 / spread) * side.by_count(exponents)
    density += side.by_count(constants)
    density -= 0.5 * np.log(spread)
    return density
