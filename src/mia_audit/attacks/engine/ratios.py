"""The likelihood ratios by the name that configs use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from mia_audit.attacks.engine.hierarchical import Ordered
from mia_audit.attacks.engine.hierarchical_designs import ratio as hierarchical
from mia_audit.attacks.engine.likelihood import LIKELIHOODS, likelihood_ratio
from mia_audit.signals.name import as_is

if TYPE_CHECKING:
    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Cells, Member


class Ratio(NamedTuple):
    """From a signal and the membership, [N records, K models], to scores, in two steps."""

    prepare: Callable[[Cells], Any]
    """What is done with the signal, whatever the membership."""
    score: Callable[..., Cells]
    pairwise: bool = False
    """Whether `score` takes `pairs` of models too (`catalogue.Attack`)."""

    def __call__(self, signal: Cells, member: Member) -> Cells:
        """Return the scores, [N, K]."""
        return self.scores(self.prepare(signal), member)

    def scores(self, prepared: Any, member: Member, pairs: Pairs | None = None) -> Cells:
        """Return the scores from what was prepared, [N, K], or of pairs of models, [N, P]."""
        return self.score(prepared, member) if pairs is None else self.score(prepared, member, pairs=pairs)


RATIOS = {
    "hierarchical": Ratio(Ordered, hierarchical, pairwise=True),
    **{name: Ratio(as_is, partial(likelihood_ratio, likelihood=name), pairwise=True) for name in LIKELIHOODS},
}
"""The best first."""

PAIRWISE = tuple(name for name, one in RATIOS.items() if one.pairwise)
"""Those that score pairs of models."""
