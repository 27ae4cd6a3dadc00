"""Further scorings of an attack, each without one of the models: what intervals over targets rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.persons import NONE, in_unit
from mia_audit.attacks.run import options_of
from mia_audit.errors import UserError
from mia_audit.evaluation.intervals import FEWEST, WITHOUT, chosen
from mia_audit.evaluation.metrics import point_metrics
from mia_audit.evaluation.ranking import Ranking
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    from jaxtyping import Int

    from mia_audit.attacks.run import Run
    from mia_audit.pools.persons import Persons
    from mia_audit.signals.name import Cells, Member

Columns = dict[str, list[list[float | None] | None]]
"""By column of metrics.parquet: a list for every model that was left out, None for all other targets."""


@dataclass(frozen=True)
class Rescored:
    """Scores of targets, each without one further model: [N records, P pairs], and every pair's target and model by their places."""

    scores: Cells
    target: Int[np.ndarray, " P"]
    left: Int[np.ndarray, " P"]
    models: int


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
    rescored = scored_without(run, readings, member, options)
    return {} if rescored is None else metrics_without(rescored, member, fprs)


def scored_without(
    run: Run, readings: Sequence[Reading], member: Member, options: Mapping[str, Any] | None = None
) -> Rescored | None:
    """Return the scores of the models that are left out in turn, each without each of the others; None where there are none."""
    models = member.shape[1]
    places = list(chosen(models))
    if run.null_control or not attacks[run.attack].repeatable or models < FEWEST:
        return None
    attack, given = attacks[run.attack], options_of(run.attack, options)
    pairs = np.array([(target, left) for left in places for target in places if target != left])
    scores = np.empty((len(member), len(pairs)), dtype=np.float64, order="F")
    for left in places:
        kept = np.delete(np.arange(models), left)
        others = [
            Reading(reading.signal, [_columns(values, kept) for values in reading.queries]) for reading in readings
        ]
        try:
            found = attack.score(others, _columns(member, kept), run.likelihood, **given)
        except UserError:  # too few models for this likelihood
            return None
        here = np.flatnonzero(pairs[:, 1] == left)
        scores[:, here] = found[:, np.searchsorted(kept, pairs[here, 0])]
    return Rescored(scores, pairs[:, 0], pairs[:, 1], models)


def metrics_without(
    rescored: Rescored, member: Member, fprs: Sequence[float], persons: Persons | None = None, aggregate: str = NONE
) -> Columns:
    """Return the columns of metrics of further scorings, of records or of persons."""
    scores = in_unit(rescored.scores, persons, aggregate)
    if persons is not None and aggregate != NONE:
        member = persons.gathered(member, "membership")
    places = len(chosen(rescored.models))
    found: dict[str, np.ndarray] = {}
    for column, (target, left) in enumerate(zip(rescored.target, rescored.left, strict=True)):
        ranking = Ranking(scores[:, column].astype(np.float32, copy=False), member[:, target])
        for name, value in point_metrics(ranking, fprs).items():
            square = found.setdefault(name, np.full((places, places), np.nan))
            square[target, left] = np.nan if value is None else value
    rest: list[None] = [None] * (rescored.models - places)
    return {f"{name}{WITHOUT}": [*_lists(square), *rest] for name, square in found.items()}


def _columns(values: Cells | Member, kept: np.ndarray) -> Any:
    """Return some of the columns, each contiguous."""
    return values.T[kept].T


def _lists(square: np.ndarray) -> list[list[float | None] | None]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in square]
