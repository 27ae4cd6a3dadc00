"""The leave-one-out likelihood ratio by types of records, under every design of the membership.

Types are learned once per fold of models, from the models of the other folds. For each single target only a record's
weights γ are computed, from all of the target's shadow models. So a target's membership never enters its own scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import NONE, completed, left_out, recognise
from mia_audit.attacks.engine.histograms import Grid
from mia_audit.attacks.engine.type_starts import first_types
from mia_audit.attacks.engine.types import Types, learn, score
from mia_audit.seeds import generator
from mia_audit.signals.columns import Columns, columns_of, slices

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.attacks.engine.types import Counts
    from mia_audit.signals.name import Cells, Member

    Fold = Int[np.ndarray, " F"]

FOLDS = 4
"""Number of folds of models; 33 folds give the same AUC on the published scores."""

MOST_SIGNALS = 2
"""Number of signals that can be read together: most bins of a joint histogram of three would be empty."""


class Evidence:
    """One or two signals of all models, with the membership: the data from which types are learned, and to which they are applied."""

    def __init__(self, signals: Sequence[Cells | Columns], member: Member) -> None:
        """Subtract each model's median from signals, [N, K], and compute the values' positions on a grid."""
        columns = [columns_of(signal) for signal in signals]
        centred = [one.centred() for one in columns]
        self._leading, self._member = centred[0], member
        self._design, self._partners = recognise(member), left_out(member)
        self._agreed = _agreed(columns)
        self._side = np.ascontiguousarray(member.T)
        self._grid = Grid(centred)
        self._counts = self._grid.counts(self._side, range(member.shape[1]))

    @property
    def folds(self) -> list[Fold]:
        """The models of every fold; complementary models share a fold."""
        units: list[list[int]] = []
        for model, partner in enumerate(self._design.partner or [NONE] * self._member.shape[1]):
            if partner == NONE or model < partner:
                units.append([model] if partner == NONE else [model, partner])
        number = min(FOLDS, len(units))
        return [np.sort([model for unit in units[fold::number] for model in unit]) for fold in range(number)]

    def without(self, models: Fold, strictly: bool = True) -> Types:
        """Return the types learned from all models except `models`.

        Where every record is in the same number of models, `strictly` leaves out some of the other models, record by
        record, so that the rest carry no information on the membership in `models`.
        """
        rest = np.setdiff1d(np.arange(self._member.shape[1]), models)
        if strictly and self._design.kind == "balanced":
            counted = equalised(self._member, models)
            counts = self._grid.counts(self._side, rest, counted.T)
            return learn(self._grid, counts, first_types(self._leading, self._member, rest, counted))
        return learn(self._grid, self._counted_without(models), first_types(self._leading, self._member, rest))

    def scores(self, fold: Fold) -> Float[np.ndarray, "N F"]:
        """Score the targets of one fold by the types learned from the other folds. Their shadow models are all other models."""
        without = None if self._partners is None else self._partners[:, fold]
        ratios = score(self.without(fold), self._grid, self._side, self._counts, fold, without)
        ratios[self._agreed] = 0
        return ratios

    def pseudo_scores(self, types: Types, pseudo: Fold, unseen: Fold) -> Float[np.ndarray, "N F"]:
        """Score shadow models as if they were targets, with all others except the `unseen` as shadow models.

        The types depend neither on the membership of `pseudo` nor on that of `unseen`.
        """
        without = None
        # The further model of a pseudo-target is always seen if models come in pairs; in a balanced design it may be unseen.
        if self._design.kind == "pairs" and self._partners is not None:
            without = self._partners[:, pseudo]
        return score(types, self._grid, self._side, self._counted_without(unseen), pseudo, without)

    def _counted_without(self, models: Fold) -> Counts:
        """Return the counts of all models except some."""
        counts = self._grid.counts(self._side, models)
        np.subtract(self._counts, counts, out=counts)
        return counts


def _agreed(signals: Sequence[Columns]) -> Bool[np.ndarray, " N"]:
    """Return a mask of the records on which all models agree, in every signal."""
    agreed = np.arange(len(signals[0]))
    for signal in signals:
        for model in range(1, signal.shape[1]):
            agreed = agreed[signal.at(model, agreed) == signal.at(0, agreed)]
    mask = np.zeros(len(signals[0]), dtype=bool)
    mask[agreed] = True
    return mask


def types_ratio(signals: Sequence[Cells | Columns], member: Member) -> Cells:
    """Score records by the posterior predictive log p(x | in) − log p(x | out) of their types, [N records, K models].

    Every record has a score, whatever the number of its models on a side. `signals` are one or two.
    """
    evidence = Evidence(signals, member)
    scores = np.empty(member.shape, dtype=np.float32, order="F")
    for fold in evidence.folds:
        scores[:, fold] = evidence.scores(fold)
    return scores


def equalised(member: Member, fold: Fold) -> Member:
    """Return which cells of a balanced membership to count so that they carry no information on the membership in a fold, [N, K].

    A record in s of the fold's F models is in m − s of the other models; m is the same for all records. F − s of these,
    and s of the models without the record, are drawn uniformly and left out. The record is then in m − F models for any
    s. With one model in the fold this does what `design.left_out` does for a target. A missing model is drawn like the
    others.
    """
    known, member = member.shape[1], completed(member)
    random = generator("counted in a balanced design", *member.shape, *fold.tolist())
    counted = np.ones(member.shape, dtype=bool)
    counted[:, fold] = False
    inside = member[:, fold].sum(axis=1, keepdims=True)
    for side, excess in ((member, len(fold) - inside), (~member, inside)):
        for rows in slices(0, *member.shape):
            choice = side[rows] & counted[rows]
            drawn = np.where(choice, random.random(choice.shape), 2.0)
            rank = np.argsort(np.argsort(drawn, axis=1), axis=1)
            counted[rows] &= ~(choice & (rank < excess[rows]))
    return counted[:, :known]
