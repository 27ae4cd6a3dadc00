"""Scores of an attack that is repeated, each time without one model, for intervals over targets.

Likelihoods that take long are not repeated. The changes of their metrics without a model are taken to be those of a
quick likelihood (`ratios.STAND_INS`): in simulations intervals hold as often, and are as wide within 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.design import Pairs, recognise
from mia_audit.attacks.engine.ratios import STAND_INS
from mia_audit.attacks.persons import NONE, in_unit
from mia_audit.attacks.run import options_of
from mia_audit.errors import UserError
from mia_audit.evaluation.intervals import FEWEST, WITHOUT, chosen
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.signals.name import Reading

if TYPE_CHECKING:
    from mia_audit.attacks.catalogue import Attack
    from mia_audit.attacks.run import Run
    from mia_audit.pools.persons import Persons
    from mia_audit.signals.name import Cells, Member

Columns = dict[str, list[list[float | None] | None]]
"""Columns of metrics.parquet by name.

For a target that was also left out, they hold its values without each of the others; for all other targets they hold
None.
"""


@dataclass(frozen=True)
class Rescored:
    """Scores of targets, each without one other model, [N records, P pairs], and the pairs (target, model left out)."""

    scores: Cells
    pairs: Pairs
    models: int
    whole: Cells | None = None
    """For a likelihood that stands in for that of the run: its scores with all models, [N, K models]."""


def without_each(
    run: Run,
    readings: Sequence[Reading],
    member: Member,
    scores: Cells,
    fprs: Sequence[float],
    options: Mapping[str, Any] | None = None,
) -> Columns:
    """Return the metrics of some targets (`intervals.chosen`), each without every other of these models.

    `scores` are those with all models. The value of a target without itself is None. The result is empty if the attack
    has no scores from so few models, or declares that repeating it takes too long. With a `pairwise` likelihood all pairs
    are scored at once, unless the membership's design requires a further model to be left out; all other attacks are run
    again without each model.
    """
    rescored = scored_without(run, readings, member, options)
    return {} if rescored is None else metrics_without(rescored, scores, member, fprs)


def scored_without(
    run: Run, readings: Sequence[Reading], member: Member, options: Mapping[str, Any] | None = None
) -> Rescored | None:
    """Return the scores for the metrics of `without_each`, or None if there are none."""
    models = member.shape[1]
    attack, given = attacks[run.attack], options_of(run.attack, options)
    likelihood = STAND_INS.get(run.likelihood, run.likelihood)
    if likelihood not in attack.likelihoods:
        likelihood = run.likelihood
    at_once = likelihood in attack.pairwise and recognise(member).independent
    if run.null_control or models < FEWEST or not (at_once or attack.repeatable):
        return None
    pairs = Pairs.among(chosen(models))
    if at_once:
        scores = attack.score(list(readings), member, likelihood, **given, pairs=pairs)
    else:
        try:
            scores = _scored_anew(attack, readings, member, likelihood, given, pairs)
        except UserError:  # too few models for this likelihood
            return None
    whole = None if likelihood == run.likelihood else attack.score(list(readings), member, likelihood, **given)
    return Rescored(scores, pairs, models, whole)


def metrics_without(
    rescored: Rescored,
    scores: Cells,
    member: Member,
    fprs: Sequence[float],
    persons: Persons | None = None,
    aggregate: str = NONE,
) -> Columns:
    """Return the metrics of `rescored` as columns, for scores of records or of persons; `scores` are those of the unit with all models.

    Where a likelihood stood in for that of the run, its changes are added to the metrics of `scores`.
    """
    pairs, models = rescored.pairs, rescored.models
    places = chosen(models)

    def judged(values: Cells, targets: np.ndarray) -> dict[str, np.ndarray]:
        return metrics_of_columns(values.astype(np.float32, copy=False), member[:, targets], fprs)

    if persons is not None and aggregate != NONE:
        member = persons.gathered(member, "membership")
    metrics = judged(in_unit(rescored.scores, persons, aggregate), pairs.target)
    if rescored.whole is not None:
        left = np.asarray(places)
        own, whole = (
            judged(values, left) for values in (scores[:, left], in_unit(rescored.whole[:, left], persons, aggregate))
        )
        metrics = {
            name: own[name][pairs.target] + (values - whole[name][pairs.target]) for name, values in metrics.items()
        }
    rest: list[None] = [None] * (models - len(places))
    columns: Columns = {}
    for name, values in metrics.items():
        square = np.full((len(places), len(places)), np.nan)
        square[pairs.target, pairs.left] = values
        columns[f"{name}{WITHOUT}"] = [*_lists(square), *rest]
    return columns


def _scored_anew(
    attack: Attack, readings: Sequence[Reading], member: Member, likelihood: str, given: dict[str, Any], pairs: Pairs
) -> Cells:
    """Return the scores of the pairs' targets, [N, P], by repeating the attack without each left-out model."""
    scores = np.empty((len(member), len(pairs)), order="F")
    for left in np.unique(pairs.left):
        kept = np.delete(np.arange(member.shape[1]), left)
        others = [Reading(reading.signal, reading.queries, kept) for reading in readings]
        matrices = {key: _of_models(value, kept, member.shape[1]) for key, value in given.items()}
        without = attack.score(others, _columns(member, kept), likelihood, **matrices)
        places = np.flatnonzero(pairs.left == left)
        scores[:, places] = without[:, np.searchsorted(kept, pairs.target[places])]
    return scores


def _of_models(option: Any, kept: np.ndarray, models: int) -> Any:
    """Restrict an option to some of the models: keep their columns in matrices that have a column per model."""
    if not isinstance(option, Mapping):
        return option
    return {
        name: _columns(value, kept) if isinstance(value, np.ndarray) and value.shape[1:] == (models,) else value
        for name, value in option.items()
    }


def _columns(values: Cells | Member, kept: np.ndarray) -> Any:
    """Return some of the columns, each contiguous."""
    return values.T[kept].T


def _lists(square: np.ndarray) -> list[list[float | None] | None]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in square]
