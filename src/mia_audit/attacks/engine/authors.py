"""The score that the published code of Huang et al. 2024 computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import left_out
from mia_audit.attacks.engine.likelihood import blocks

if TYPE_CHECKING:
    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Cells, Member


def authors_ratio(signal: Cells, member: Member, pairs: Pairs | None = None) -> Cells:
    """Score by a Gaussian log ratio around a record's in and out means, with a single variance per target.

    The variance is that of the in and out means of all records.

    `signal` and `member` are [N records, K models]; so are the scores, or with `pairs` [N, P], one column per pair. NaN
    where no other model is on one side.
    """
    columns = signal.shape[1] if pairs is None else len(pairs)
    scores = np.empty((len(signal), columns), order="F")
    count, total, square = np.zeros((3, columns))
    centre = float(signal.mean())
    for block in blocks(signal, member, pairs or left_out(member)):
        value = block.values + (block.span.mean - centre)
        for side in (block.inside, block.outside):
            known = side.count > 0
            means = np.where(known, value - side.deviation, 0)
            count += known.sum(axis=0)
            total += means.sum(axis=0)
            square += np.square(means).sum(axis=0)
        score = (block.outside.deviation**2 - block.inside.deviation**2) / 2
        score[block.span.agreed] = 0
        score[(block.inside.count < 1) | (block.outside.count < 1)] = np.nan
        scores[block.rows] = score
    count = np.maximum(count, 1)
    scores /= np.maximum(square / count - (total / count) ** 2, np.finfo(np.float64).tiny)
    return scores
