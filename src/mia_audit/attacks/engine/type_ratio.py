"""The leave-one-out likelihood ratio by types of records, under every design of the membership, and its blend with another.

What must not happen: a target's own membership in the estimates from which it is scored; an AUC far above the truth would
come out, in the null control too. Learning types anew for each of K targets would be safe and K times as slow.

What is done instead: types are learned once per fold of models, from the models of the other folds. For each single
target only a record's weights γ are computed, from all of the target's shadow models. EM starts from quantile cells of
the records' out mean and, within those, of their shift, which are statistics of the fold's models too.

`blend` is a weighted sum of two log ratios: `types` is better on large pools, `hierarchical` on small ones. Why the weights
are learned, and not switched by the size of the pool: where one overtakes the other depends on the signal, on the number
of models and on how much leaks. They are those of a logistic regression of membership on both scores, with shadow models
as pseudo-targets, whose membership the attacker knows. For every fold of targets the pseudo-targets are models of other
folds, scored without that fold. So the weights of a target do not depend on its membership either. Only where at most
`TINY` records make them too uncertain to be of use are types left out (benchmarks/tiny_pools.tsv).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import NO_MODEL, completed, drawn_records, left_out, recognise
from mia_audit.attacks.engine.hierarchical import BINS, RECORDS_PER_BIN
from mia_audit.attacks.engine.types import Grid, Types, learn, score
from mia_audit.seeds import generator
from mia_audit.signals.name import Columns, columns_of, slices

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.attacks.design import Design
    from mia_audit.attacks.engine.types import Counts
    from mia_audit.signals.name import Cells, Member, Some

    Fold = Int[np.ndarray, " F"]

    Other = Callable[..., Cells]
    Beside = Callable[..., Cells]
    Features = Float[np.ndarray, "n F"]

LEVELS, SHIFTS = 20, 8
"""Number of quantile cells of the out mean, and of the shift within each of them."""

CELLS_PER_TYPE = 100
"""Smallest number of values (one per record and shadow model) per type; with fewer values there are fewer types."""

LEAST_SPREAD = 1e-6
"""Lower limit of the spread of the shift."""


def first_types(
    signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
) -> Int[np.ndarray, " N"]:
    """Return every record's initial type from the values of some shadow models; matrices are [N records, K models].

    Cells where `counted` is false are left out.
    """
    level, shift = shrunk_means(signal, member, models, counted)
    scale = min(1.0, (len(level) * len(models) / CELLS_PER_TYPE / (LEVELS * SHIFTS)) ** 0.5)
    levels, shifts = max(2, int(LEVELS * scale)), max(2, int(SHIFTS * scale))
    types = np.zeros(len(level), dtype=np.intp)
    for row, records in enumerate(np.array_split(np.argsort(level, kind="stable"), levels)):
        for column, cell in enumerate(np.array_split(records[np.argsort(shift[records], kind="stable")], shifts)):
            types[cell] = row * shifts + column
    return types


def shrunk_means(
    signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Return every record's out mean, and its shift to the in mean, shrunk towards the shift of records with similar means.

    The computation is that of `hierarchical`, but from all of the models, because none of them is a target.
    """
    sides = _Sides(signal, member, models, counted)
    number_in, number_out = sides.numbers
    many_in, many_out = many = np.maximum(sides.numbers, 1)
    number = np.maximum(number_in + number_out, 1)
    means = sides.totals / many
    mean, shift = sides.totals.sum(axis=0) / number, means[0] - means[1]
    pool_in, pool_out = sides.squares(means) / np.maximum(np.maximum(sides.numbers - 1, 0).sum(axis=1), 1)
    noise = pool_in / many_in + pool_out / many_out
    both = (number_in > 0) & (number_out > 0)
    parts = np.array_split(np.argsort(mean, kind="stable"), int(np.clip(len(mean) // RECORDS_PER_BIN, 1, BINS)))
    at, expected, spread = np.array(
        [(mean[part].mean(), *_moments(shift, noise, part[both[part]])) for part in parts]
    ).T
    expected, spread = np.interp(mean, at, expected), np.interp(mean, at, spread)
    shrunk = expected + np.where(both, spread / (spread + noise), 0) * (shift - expected)
    return mean - number_in / number * shrunk, shrunk


class _Sides:
    """The sums of a signal over some models with each record and over those without it; cells that do not count are left out."""

    def __init__(
        self, signal: Columns, member: Member, models: Int[np.ndarray, " S"], counted: Member | None = None
    ) -> None:
        """Add up the values of every record."""
        self._signal, self._member, self._models, self._counted = signal.of(models), member, models, counted
        self.numbers: Float[np.ndarray, "2 N"] = np.empty((2, len(member)))
        """The number of models with each record, and without it."""
        self.totals: Float[np.ndarray, "2 N"] = np.empty((2, len(member)))
        """The sums of their values."""
        for rows, values, sides in self._blocks():
            self.numbers[:, rows] = sides.sum(axis=2)
            self.totals[:, rows] = np.einsum("bs,cbs->cb", values, sides)

    def squares(self, means: Float[np.ndarray, "2 N"]) -> Float[np.ndarray, " 2"]:
        """Return the sums of squared deviations from the means of either side."""
        sums = np.empty((2, len(self._member)))
        for rows, values, sides in self._blocks():
            for side, (mean, inside) in enumerate(zip(means, sides, strict=True)):
                deviations = (values - mean[rows, None]) * inside
                sums[side, rows] = np.einsum("bs,bs->b", deviations, deviations)
        return np.asarray(sums.sum(axis=1))

    def _blocks(self) -> Iterator[tuple[slice, Cells, Float[np.ndarray, "2 B S"]]]:
        """Yield blocks of records: their values, and 1 for the cells in and out that count."""
        for rows in slices(0, len(self._member), max(len(self._models), 1)):
            sides = np.empty((2, rows.stop - rows.start, len(self._models)))
            sides[0] = self._member.T[self._models, rows].T
            np.subtract(1, sides[0], out=sides[1])
            if self._counted is not None:
                sides *= self._counted.T[self._models, rows].T
            yield rows, np.ascontiguousarray(self._signal[rows]), sides


def _moments(shift: np.ndarray, noise: np.ndarray, records: np.ndarray) -> tuple[float, float]:
    """Return the mean of the records' shifts and their spread beyond noise."""
    if not len(records):
        return 0.0, LEAST_SPREAD
    expected = float(shift[records].mean())
    return expected, max(float(((shift[records] - expected) ** 2 - noise[records]).mean()), LEAST_SPREAD)


FOLDS = 4
"""Number of folds of models; 33 folds give the same AUC on the published scores."""

LEARNED = 1 << 17
"""Largest number of records from which types and weights are learned, drawn at random; they are applied to all records."""

MOST_SIGNALS = 2
"""Number of signals that can be read together: most bins of a joint histogram of three would be empty."""


def folds_of(design: Design, models: int) -> list[Fold]:
    """Return the models of every fold; complementary models share a fold."""
    units: list[list[int]] = []
    for model, partner in enumerate(design.partner or [NO_MODEL] * models):
        if partner == NO_MODEL or model < partner:
            units.append([model] if partner == NO_MODEL else [model, partner])
    number = min(FOLDS, len(units))
    return [np.sort([model for unit in units[fold::number] for model in unit]) for fold in range(number)]


class Evidence:
    """One or two signals of all models, with the membership: the data from which types are learned, and to which they are applied."""

    def __init__(self, signals: Sequence[Cells | Columns], member: Member) -> None:
        """Subtract each model's median from signals, [N, K], compute the values' positions on a grid, and choose the records to learn from."""
        columns = [columns_of(signal) for signal in signals]
        centred = [one.centred() for one in columns]
        self._leading, self._member = centred[0], member
        self._design, self._partners = recognise(member), left_out(member)
        self._agreed = _agreed(columns)
        self._side = np.ascontiguousarray(member.T)
        self._grid = Grid(centred)
        self._counts = self._grid.counts(self._side, range(member.shape[1]))
        self.learned: Some = slice(None)
        if (records := len(member)) > LEARNED:
            self.learned = drawn_records(records, LEARNED, "records of types")

    @property
    def folds(self) -> list[Fold]:
        """The models of every fold; complementary models share a fold."""
        return folds_of(self._design, self._member.shape[1])

    def without(self, models: Fold, strictly: bool = True) -> Types:
        """Return the types learned from all models except `models`.

        Where every record is in the same number of models, `strictly` leaves out some of the other models, record by
        record, so that the rest carry no information on the membership in `models`.
        """
        rows, rest = self.learned, np.setdiff1d(np.arange(self._member.shape[1]), models)
        signal, member = self._leading.among(rows), self._member[rows]
        if strictly and self._design.kind == "balanced":
            counted = equalised(member, models)
            counts = self._grid.counts(self._side, rest, counted.T, rows)
            return learn(self._grid, counts, first_types(signal, member, rest, counted))
        return learn(self._grid, self._counted_without(models, rows), first_types(signal, member, rest))

    def scores(self, fold: Fold) -> Float[np.ndarray, "N F"]:
        """Score the targets of one fold by the types learned from the other folds. Their shadow models are all other models."""
        without = None if self._partners is None else self._partners[:, fold]
        ratios = score(self.without(fold), self._grid, self._side, counts=self._counts, targets=fold, left=without)
        ratios[self._agreed] = 0
        return ratios

    def pseudo_scores(self, types: Types, pseudo: Fold, unseen: Fold) -> Float[np.ndarray, "N F"]:
        """Score shadow models at the records to learn from as if they were targets, with all others except the `unseen` as shadow models.

        The types depend neither on the membership of `pseudo` nor on that of `unseen`.
        """
        rows, without = self.learned, None
        # The further model of a pseudo-target is always seen if models come in pairs; in a balanced design it may be unseen.
        if self._design.kind == "pairs" and self._partners is not None:
            without = self._partners[rows][:, pseudo]
        counts, numbers = self._counted_without(unseen, rows), np.arange(len(self._member))[rows]
        return score(types, self._grid, self._side, counts=counts, targets=pseudo, left=without, numbers=numbers)

    def _counted_without(self, models: Fold, rows: Some = slice(None)) -> Counts:
        """Return the counts of all models except some, at some records."""
        counts = self._grid.counts(self._side, models, rows=rows)
        np.subtract(self._counts[rows], counts, out=counts)
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


ENOUGH_CELLS, MOST_CELLS = 4_000, 100_000
"""Limits on the scores from which weights are learned: folds are added until the first number is reached; each fold gives at most the second."""

TINY = 150
"""Largest pool, in records, on which a weighted sum is no better than its better part, which is the one without types."""

LARGEST = 5.0
"""Log ratios are clipped at this value when the weights are learned: a model trained differently from the rest has many large, wrong ratios."""

STEPS = 15
"""Number of Newton steps of the regression."""

RIDGE = 1.0
"""The regression's penalty on squared coefficients; the log likelihood is a sum over scores, not a mean."""


def blended_ratio(
    signals: Sequence[Cells | Columns], member: Member, *, other: Other, beside: Beside | None = None
) -> Cells:
    """Score records by a weighted sum of two log ratios, by types and by `other`, [N records, K models], in float32.

    On pools of at most `TINY` records the score is that by `other`, plus that by `beside` if there is one.

    `other` scores targets from signals and membership, without reading a target's own membership: all of them or, with
    `kept`, some. `beside` gives a third log ratio, of other data, from the models to read, their membership and `kept`.
    """
    columns = [columns_of(signal) for signal in signals]
    scores = other(columns, member)
    third = None if beside is None else beside(np.arange(member.shape[1]), member)
    if len(member) <= TINY:
        return (scores if third is None else scores + third).astype(np.float32, copy=False)
    evidence = Evidence(columns, member)
    pair_types: dict[tuple[int, ...], Types] = {}
    for place, fold in enumerate(evidence.folds):
        of_types, *of_others = _weights(
            evidence, columns, member, place=place, learned=pair_types, other=other, beside=beside
        )
        by_types = evidence.scores(fold)
        for column, one in zip(fold, by_types.T, strict=True):
            scores[:, column] = of_types * one + of_others[0] * scores[:, column]
            if third is not None:
                scores[:, column] += of_others[1] * third[:, column]
        del by_types, one  # free the memory before the next fold
    return scores.astype(np.float32, copy=False)


def _weights(
    evidence: Evidence,
    signals: Sequence[Columns],
    member: Member,
    place: int,
    learned: dict[tuple[int, ...], Types],
    other: Other,
    beside: Beside | None,
) -> Float[np.ndarray, " F"]:
    """Return the weights of the log ratios by types, by `other` and by `beside` for the fold at `place`, learned from pseudo-targets.

    `learned` caches the types by the two folds left out, because both folds use them.
    """
    folds = evidence.folds
    unseen = folds[place]
    rest = np.setdiff1d(np.arange(member.shape[1]), unseen)
    pseudo_targets = list(_pseudo_targets(folds, place, len(member)))
    kept = np.searchsorted(rest, np.concatenate([pseudo for _, pseudo in pseudo_targets]))
    rows = evidence.learned
    others = [other([signal.of(rest).among(rows) for signal in signals], member[rows][:, rest], kept=kept)]
    if beside is not None:
        others.append(beside(rest, member[:, rest], kept=kept)[rows])
    features, labels, start = [], [], 0
    for second, pseudo in pseudo_targets:
        both = tuple(sorted((place, second)))
        if both not in learned:
            learned[both] = evidence.without(np.union1d(unseen, folds[second]), strictly=False)
        by_types = evidence.pseudo_scores(learned[both], pseudo, unseen)
        ratios = [by_types, *(one[:, start : start + len(pseudo)] for one in others)]
        features.append(np.stack([one.ravel() for one in ratios], axis=1).astype(np.float64))
        labels.append(member[rows][:, pseudo].ravel())
        start += len(pseudo)
    return blend_weights(np.concatenate(features), np.concatenate(labels))


def _pseudo_targets(folds: Sequence[Fold], place: int, records: int) -> Iterator[tuple[int, Fold]]:
    """Yield the indices of other folds, each with the models that serve as pseudo-targets, until there are enough scores.

    In cyclic order, the fold half the cycle away comes first, so that two folds choose each other and share the types
    learned without both.
    """
    number, cells = len(folds), 0
    for step in sorted(range(1, number), key=lambda step: (abs(2 * step - number), step)):
        if cells >= ENOUGH_CELLS:
            return
        second = (place + step) % number
        pseudo = folds[second][: -(-MOST_CELLS // records)]
        yield second, pseudo
        cells += len(pseudo) * records


def blend_weights(features: Features, labels: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " F"]:
    """Return a non-negative weight for every feature, by logistic regression. If no feature predicts the labels, all weights are 1.

    Rows with NaN are left out.
    """
    known = np.isfinite(features).all(axis=1)
    features, labels = np.clip(features[known], -LARGEST, LARGEST), labels[known]
    weights, kept = np.zeros(features.shape[1]), np.arange(features.shape[1])
    while len(kept) and len(labels):
        coefficients = _regression(features[:, kept], labels)
        if (coefficients > 0).all():
            weights[kept] = coefficients
            return weights
        kept = np.delete(kept, np.argmin(coefficients))
    return np.ones(features.shape[1])


def _regression(features: Features, labels: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " F"]:
    """Return the coefficients of a logistic regression with an intercept, by Newton's method."""
    design = np.column_stack([features - features.mean(axis=0), np.ones(len(features))])
    coefficients = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-design @ coefficients))
        hessian = (design * (chance * (1 - chance))[:, None]).T @ design + RIDGE * np.eye(len(coefficients))
        coefficients -= np.linalg.solve(hessian, design.T @ (chance - labels) + RIDGE * coefficients)
    return coefficients[:-1]
