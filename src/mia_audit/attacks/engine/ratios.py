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
    from mia_audit.signals.name import Cells, Member


class Ratio(NamedTuple):
    """From a signal and the membership, [N records, K models], to scores, in two steps."""

    prepare: Callable[[Cells], Any]
    """What is done with the signal, whatever the membership."""
    score: Callable[[Any, Member], Cells]

    def __call__(self, signal: Cells, member: Member) -> Cells:
        """Return the scores, [N, K]."""
        return self.score(self.prepare(signal), member)


RATIOS = {
    "hierarchical": Ratio(Ordered, hierarchical),
    **{name: Ratio(as_is, partial(likelihood_ratio, likelihood=name)) for name in LIKELIHOODS},
}
"""The best first."""
