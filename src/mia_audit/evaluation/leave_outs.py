"""Further scorings of an attack, each without one of the models: what intervals over targets rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.run import options_of
from mia_audit.errors import UserError
from mia_audit.evaluation.intervals import FEWEST, WITHOUT, chosen
from mia_audit.evaluation.metrics import point_metrics
from mia_audit.evaluation.ranking import Ranking
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    from mia_audit.attacks.run import Run
    from mia_audit.signals.name import Cells, Member

Columns = dict[str, list[list[float | None] | None]]
"""By column of metrics.parquet: a list for every model that was left out, None for all other targets."""


def without_each(
    run: Run,
    readings: Sequence[Reading],
    member: Member,
    fprs: Sequence[float],
    options: Mapping[str, Any] | None = None,
) -> Columns:
    """Return every metric of the models that are left out in turn, each without each of the others.

    The diagonal, a target without itself, is None; so is all where the attack has no scores of so few models, and where it
    declares that repeating it costs too much.
    """
    models = member.shape[1]
    places = list(chosen(models))
    if run.null_control or not attacks[run.attack].repeatable or models < FEWEST:
        return {}
    attack, given = attacks[run.attack], options_of(run.attack, options)
    found: dict[str, np.ndarray] = {}
    for column, left in enumerate(places):
        kept = np.delete(np.arange(models), left)
        others = [
            Reading(reading.signal, [_columns(values, kept) for values in reading.queries]) for reading in readings
        ]
        here = _columns(member, kept)
        try:
            scores = attack.score(others, here, run.likelihood, **given)
        except UserError:  # too few models for this likelihood
            return {}
        for row, target in enumerate(places):
            if target == left:
                continue
            place = target - (target > left)
            ranking = Ranking(scores[:, place].astype(np.float32, copy=False), here[:, place])
            for name, value in point_metrics(ranking, fprs).items():
                square = found.setdefault(name, np.full((len(places), len(places)), np.nan))
                square[row, column] = np.nan if value is None else value
    rest: list[None] = [None] * (models - len(places))
    return {f"{name}{WITHOUT}": [*_lists(square), *rest] for name, square in found.items()}


def _columns(values: Cells | Member, kept: np.ndarray) -> Any:
    """Return some of the columns, each contiguous."""
    return values.T[kept].T


def _lists(square: np.ndarray) -> list[list[float | None] | None]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in square]
