"""The likelihood ratios by the name that configs use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mia_audit.attacks.engine.hierarchical import Ordered
from mia_audit.attacks.engine.hierarchical import ratio as hierarchical
from mia_audit.attacks.engine.likelihood import LIKELIHOODS, likelihood_ratio
from mia_audit.attacks.engine.type_ratio import blended_ratio, types_ratio
from mia_audit.signals.name import Columns, columns_of

if TYPE_CHECKING:
    from mia_audit.attacks.design import Pairs
    from mia_audit.attacks.engine.hierarchical import Kept
    from mia_audit.signals.name import Cells, Member


class Ratio(NamedTuple):
    """A score from a signal and the membership, [N records, K models], computed in two steps."""

    prepare: Callable[[Columns], Any]
    """The first step, from the signal alone, without the membership (`Reading.prepared`)."""
    score: Callable[..., Cells]
    pairwise: bool = False
    """Whether `score` takes `pairs` of models too (`catalogue.Attack`)."""

    def __call__(self, signal: Cells, member: Member) -> Cells:
        """Return the scores, [N, K]."""
        return self.scores(self.prepare(Columns(signal)), member)

    def scores(self, prepared: Any, member: Member, pairs: Pairs | None = None) -> Cells:
        """Return the scores from the prepared signal, [N, K], or those of pairs of models, [N, P]."""
        return self.score(prepared, member) if pairs is None else self.score(prepared, member, pairs=pairs)


def types(signal: Columns, member: Member) -> Cells:
    """Score one signal by `types_ratio`."""
    return types_ratio([signal], member)


def blend(signal: Columns, member: Member) -> Cells:
    """Score one signal by `blended_ratio` of types and the hierarchical ratio."""
    return blended_ratio([signal], member, other=hierarchical_of)


def hierarchical_of(signals: Sequence[Columns], member: Member, kept: Kept = None) -> Cells:
    """Score one signal by the hierarchical ratio, as `blended_ratio` asks for it."""
    (signal,) = signals
    return hierarchical(Ordered(signal), member, kept=kept)


RATIOS = {
    "blend": Ratio(columns_of, blend),
    "hierarchical": Ratio(Ordered, hierarchical, pairwise=True),
    "types": Ratio(columns_of, types),
    **{name: Ratio(columns_of, partial(likelihood_ratio, likelihood=name), pairwise=True) for name in LIKELIHOODS},
}
"""The ratios by name, the best first."""

PAIRWISE = tuple(name for name, one in RATIOS.items() if one.pairwise)
"""The likelihoods that score pairs of models."""

STAND_INS = {"blend": "hierarchical", "types": "hierarchical"}
"""Likelihoods that take long, and for each a quick one, whose metrics change in the same way with fewer models."""
