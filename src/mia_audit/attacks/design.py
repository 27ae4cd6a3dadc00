"""Membership designs in which the other models' members reveal the target's, and the models to leave out to prevent that.

Where every record is in the same number of models (Carlini's `num_experiments`, LeakPro's assignments), the number of
other models that contain a record reveals whether the target contains it. Where models come in complementary pairs
(Privacy Meter), the target's partner reveals it. Leaving out one further model, which contains the record if and only
if the target does not, makes the remaining models independent of the target's membership: the same number of them
contains the record under either hypothesis. For pairs the further model is the partner. Otherwise it is drawn
uniformly, record by record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mia_audit.seeds import generator
from mia_audit.signals.columns import slices

if TYPE_CHECKING:
    from jaxtyping import Int

    from mia_audit.signals.name import Member

    Partners = Int[np.ndarray, "N K"]

    Leaving: TypeAlias = "Partners | Pairs | None"

CHANCE = 1e-9
"""A design is recognised only if independent memberships would match it with less than this probability."""

GLANCE = 64
"""Number of records that are checked first. They nearly always suffice to recognise independent memberships."""

NONE = -1
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
        partners[rows] = np.where(opposite & (chosen < known), chosen, NONE)
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
    exists = (partners != NONE).astype(np.float64)
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
    from scipy.stats import binom

    count = member.sum(axis=1)
    low, high = int(count.min()), int(count.max())
    models, share = member.shape[1], float(member.mean())
    if high - low > 1 or not 0 < share < 1:
        return False
    chance = sum(float(binom.pmf(number, models, share)) for number in range(low, high + 1))
    return len(member) * math.log(max(chance, 1e-300)) < math.log(CHANCE)


def _partners(member: Member) -> tuple[int, ...]:
    """Return every model's complement, NONE for those without one; empty where no model has any."""
    packed = [np.packbits(column).tobytes() for column in member.T]
    places = {column: model for model, column in enumerate(packed)}
    complements = [np.packbits(~column).tobytes() for column in member.T]
    partners = tuple(places.get(column, NONE) for column in complements)
    return partners if any(partner != NONE for partner in partners) else ()
