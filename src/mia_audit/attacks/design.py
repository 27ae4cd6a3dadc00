"""Membership designs in which the other models' members reveal the target's, and the models to leave out to prevent that.

Where every record is in the same number of models (Carlini's `num_experiments`, LeakPro's assignments), the number of
other models that contain a record reveals whether the target contains it. Where models come in complementary pairs
(Privacy Meter), the target's partner reveals it. Leaving out one further model, which contains the record if and only
if the target does not, makes the remaining models independent of the target's membership: the same number of them
contains the record under either hypothesis. For pairs the further model is the partner. Otherwise it is drawn
uniformly, record by record.

Records' scores may be aggregated to scores of persons, for any attack. A model trains on all of a person's records or on
none, so an attack on a person combines all of their records. Given the membership, records are assumed to be
independent: the log likelihood ratio of a person is the sum over their records (METHODS section 12). The maximum and
the mean are reported too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mia_audit.seeds import generator
from mia_audit.signals.name import slices

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.pools.persons import Persons
    from mia_audit.signals.name import Cells, Member

    Partners = Int[np.ndarray, "N K"]
    Leaving: TypeAlias = "Partners | Pairs | None"


CHANCE = 1e-9
"""A design is recognised only if independent memberships would match it with less than this probability."""

GLANCE = 64
"""Number of records that are checked first. They nearly always suffice to recognise independent memberships."""

NO_MODEL = -1
"""Marks that no further model is left out."""


@dataclass(frozen=True)
class Design:
    """How memberships of one record in different models depend on each other.

    The kinds are `independent`, `balanced` and `pairs`. In a `balanced` design every record is in the same number of
    models or, if one model is missing, in one of two adjacent numbers. In `pairs` the columns are complementary.
    """

    kind: str
    partner: tuple[int, ...] = ()
    """For `pairs`: every model's complement; NONE where that is missing."""

    @property
    def independent(self) -> bool:
        """Whether the other models' memberships carry no information on the target's."""
        return self.kind == "independent"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata `design_correction` of tables of scores and metrics; empty where nothing was corrected."""
        return {} if self.independent else {CORRECTION: self.kind}


CORRECTION = "design_correction"
"""The key of the correction in the metadata of scores.parquet and metrics.parquet."""

SENTENCES = {
    "balanced": (
        "Every record is in the same number of models, so the other models' memberships would reveal the target's: attacks leave"
        " out one further model of the opposite membership per record and target."
    ),
    "pairs": (
        "The models come in complementary pairs, so a target's partner would reveal its membership: "
        "attacks on a target leave out its partner."
    ),
}
"""The report's sentence for each kind of design."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of models, one per column of scores: a target, and a second model that is left out of the target's score, [P] each.

    They are used only with independent memberships, whose design requires no further model to be left out.
    """

    target: Int[np.ndarray, " P"]
    left: Int[np.ndarray, " P"]

    @classmethod
    def among(cls, models: Sequence[int]) -> Pairs:
        """Return all ordered pairs of different models."""
        first, second = np.meshgrid(np.asarray(models), np.asarray(models), indexing="ij")
        different = first != second
        return cls(first[different], second[different])

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.target)


def of_targets(values: np.ndarray, pairs: Pairs | None) -> np.ndarray:
    """Return the targets' values: all columns, or those of the pairs' targets."""
    return values if pairs is None else values[:, pairs.target]


def recognise(member: Member) -> Design:
    """Return the design of a membership matrix, [N records, K models]."""
    first = member[:GLANCE]
    if not (_adjacent(first) or _partners(first)):
        return Design("independent")
    if (pairs := _partners(member)) and len(member) > -math.log2(CHANCE) + 2 * math.log2(member.shape[1]):
        return Design("pairs", pairs)
    return Design("balanced") if _balanced(member) else Design("independent")


def left_out(member: Member) -> Partners | None:
    """Return the further model to leave out of every target's score of every record (NONE: no model), or None if no score needs one.

    The random choice has a fixed key, so that equal memberships always leave out the same models.
    """
    design = recognise(member)
    if design.independent:
        return None
    if design.partner:
        return np.broadcast_to(np.array(design.partner, dtype=np.int32), member.shape)
    known, member = member.shape[1], completed(member)
    records, models = member.shape
    random = generator("left out of a balanced design", records, models)
    partners: Partners = np.empty(member.shape, dtype=np.min_scalar_type(-models))
    for rows in slices(0, records, models):  # every record's models in random order, those without the record first
        here = member[rows]
        partners[rows] = np.argsort(random.random(here.shape, dtype=np.float32) + here, axis=1)
    for rows in slices(0, records, models):
        here, order = member[rows], partners[rows]
        inside = here.sum(axis=1, keepdims=True)
        outside = models - inside
        draws = random.random(here.shape)
        place = np.where(here, (draws * outside).astype(np.intp), outside + (draws * inside).astype(np.intp))
        chosen = np.take_along_axis(order, np.minimum(place, models - 1), axis=1)
        opposite = np.where(here, outside, inside) > 0
        partners[rows] = np.where(opposite & (chosen < known), chosen, NO_MODEL)
    return partners[:, :known]


def completed(member: Member) -> Member:
    """Return a balanced membership, with the missing model, if any, as a last column.

    The counts of the other models determine the missing model's membership. The model to leave out is drawn from all
    models, including the missing one. If the missing one is drawn, none is left out. Without it in the draw, counts
    would stay informative.
    """
    count = member.sum(axis=1)
    missing = count < count.max()
    return np.column_stack([member, missing]) if missing.any() else member


def opposite_values(values: np.ndarray, partners: Partners) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the left-out further models, and a mask that is 1 where there is such a model, [B, K] each; both are 0 elsewhere."""
    exists = (partners != NO_MODEL).astype(np.float64)
    return np.take_along_axis(values, np.maximum(partners, 0), axis=1) * exists, exists


def same_training_set(member: Member) -> tuple[int, int] | None:
    """Return two models with equal memberships, or None. Equality that independent memberships may have by chance is ignored."""
    records, models = member.shape
    share = member.mean(axis=0)
    alike = float((share**2 + (1 - share) ** 2).max())
    if records * math.log(max(alike, 1e-300)) + 2 * math.log(models) > math.log(CHANCE):
        return None
    places: dict[bytes, int] = {}
    for model, column in enumerate(member.T):
        if (first := places.setdefault(np.packbits(column).tobytes(), model)) != model:
            return first, model
    return None


def _adjacent(member: Member) -> bool:
    """Return whether all records are in the same number of models, or in one of two adjacent numbers."""
    count = member.sum(axis=1)
    return bool(count.max() - count.min() <= 1)


def _balanced(member: Member) -> bool:
    """Return whether `_adjacent` holds, and is unlikely to hold by chance for independent memberships."""
    count = member.sum(axis=1)
    low, high = int(count.min()), int(count.max())
    models, share = member.shape[1], float(member.mean())
    if high - low > 1 or not 0 < share < 1:
        return False
    chance = sum(_binomial(number, models, share) for number in range(low, high + 1))
    return len(member) * math.log(max(chance, 1e-300)) < math.log(CHANCE)


def _binomial(number: int, of: int, share: float) -> float:
    """Return the probability of this many of `of` at a share between 0 and 1."""
    ways = math.lgamma(of + 1) - math.lgamma(number + 1) - math.lgamma(of - number + 1)
    return math.exp(ways + number * math.log(share) + (of - number) * math.log1p(-share))


def _partners(member: Member) -> tuple[int, ...]:
    """Return every model's complement, NONE for those without one; empty where no model has any."""
    packed = [np.packbits(column).tobytes() for column in member.T]
    places = {column: model for model, column in enumerate(packed)}
    complements = [np.packbits(~column).tobytes() for column in member.T]
    partners = tuple(places.get(column, NO_MODEL) for column in complements)
    return partners if any(partner != NO_MODEL for partner in partners) else ()


RECORD, PERSON = "record", "person"
"""The units of a score."""

RECORDS = "none"
"""The name of the aggregate where scores are those of single records."""


def _sum(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.asarray(np.add.reduceat(np.where(np.isnan(values), 0, values), starts))


def _mean(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.asarray(_sum(values, starts, counts) / np.maximum(counts, 1))


def _largest(values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum.reduceat(np.where(np.isnan(values), -np.inf, values), starts))


AGGREGATES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": _sum,
    "mean": _mean,
    "max": _largest,
}
"""Aggregates by name. They map sorted scores, and the start and number of every person's scores, to one score per person."""

HEADLINE = next(iter(AGGREGATES))
"""The aggregate that is reported first: for log likelihood ratios, the ratio of all of a person's records together."""


def of_persons(scores: Float[np.ndarray, "N T"], persons: Persons, aggregate: str) -> Float[np.ndarray, "P T"]:
    """Aggregate the scores of each person's records, column by column. A person whose records all lack a score gets NaN.

    A person's scores are added in float64 and in ascending order, so that the result does not depend on the order of
    rows.
    """
    starts = np.cumsum(persons.records) - persons.records
    aggregated = np.empty((len(persons), scores.shape[1]), dtype=np.float64)
    for column in range(scores.shape[1]):
        order = np.lexsort((scores[:, column], persons.of))
        values = scores[order, column].astype(np.float64, copy=False)
        counts = np.add.reduceat(~np.isnan(values), starts, dtype=np.int64)
        aggregated[:, column] = np.where(counts > 0, AGGREGATES[aggregate](values, starts, counts), np.nan)
    return aggregated


def in_unit(values: np.ndarray, persons: Persons | None, aggregate: str) -> np.ndarray:
    """Return records' scores unchanged if `aggregate` is `none`, else those of persons."""
    return values if persons is None or aggregate == RECORDS else of_persons(values, persons, aggregate)


def aggregates_of(persons: Persons | None) -> tuple[str, ...]:
    """List the aggregates of scores: `none` for records, and those of persons where persons are known."""
    return (RECORDS,) if persons is None else (RECORDS, *AGGREGATES)


def unit_of(aggregate: str) -> str:
    """Return the unit (record or person) that an aggregate's scores are for."""
    return RECORD if aggregate == RECORDS else PERSON


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


def drawn_records(records: int, count: int, purpose: str) -> Int[np.ndarray, " n"]:
    """Return the ascending places of so many records, drawn at random, always the same for a purpose."""
    return np.sort(generator(purpose, records).choice(records, count, replace=False))


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
