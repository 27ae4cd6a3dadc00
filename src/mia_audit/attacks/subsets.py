"""Attacks with fewer other models: the models are split into groups, each of which is audited separately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Int

    from mia_audit.signals.name import Cells, Member

FEWEST = 4
"""Number of other models in the smallest groups."""


def counts(models: int) -> list[int]:
    """Return the numbers of other models to evaluate: 4, 8, 16 … and all of them; empty where there are at most 4."""
    doubled = []
    count = FEWEST
    while count < models - 1:
        doubled.append(count)
        count *= 2
    return [*doubled, models - 1] if doubled else []


def groups(models: int, others: int, *key: int | str) -> Iterator[tuple[Int[np.ndarray, " n"], int]]:
    """Yield random groups of `others` + 1 models, each with its number of targets, which come first in the group.

    Every model is a target once. The last group is filled up with models that are targets in other groups.
    """
    order = generator(*key, "groups of models", models, others).permutation(models)
    for start in range(0, models, others + 1):
        targets = order[start : start + others + 1]
        yield np.concatenate([targets, order[: others + 1 - len(targets)]]), len(targets)


def scored_with(
    score: Callable[[Int[np.ndarray, " n"], Member], Cells], member: Member, others: int, *key: int | str
) -> Cells:
    """Return the scores of all targets, each from this many other models, [N records, K targets].

    `score` takes the models of a group and their membership, and returns their scores.
    """
    scores = np.empty((0, 0))
    for models, targets in groups(member.shape[1], others, *key):
        columns = score(models, np.asfortranarray(member[:, models]))
        if not scores.size:  # the first group is the largest, and takes the most memory
            scores = np.empty(member.shape, dtype=np.float32, order="F")
        scores[:, models[:targets]] = columns[:, :targets]
        del columns  # free these scores before the next ones are computed
    return scores
