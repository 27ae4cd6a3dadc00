"""Likelihood ratios of one signal over in and out models: p(x | in) against p(x | out).

The ratio of the confidence is LiRA (Carlini et al. 2022). The same ratio reads an attribution's variance, L1 and L2
norm (Huang et al. 2024) and maximum norm; as `lrt` it reads any other signal. Positive signals are heavy-tailed, so
their logarithm is used; the `-raw` forms use the raw signal, and `loss-lira-raw` the raw loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import attack
from mia_audit.attacks.engine.ratios import PAIRWISE, RATIOS
from mia_audit.signals.name import every, named, others

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.catalogue import Score
    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading


def on_every_signal(
    form: str, likelihoods: Iterable[str], pairwise: Iterable[str], outputs: str = "confidence"
) -> Callable[[Score], Score]:
    """Register the decorated ratio once for each kind of signal, under names that end in `form`; `loss-lira` reads `outputs`."""
    kinds = {
        "loss-lira": named(outputs),
        **{
            f"{name}-lrt": every(summary)
            for name, summary in (("var", "variance"), ("l1", "l1"), ("l2", "l2"), ("linf", "linf"))
        },
        "lrt": others,
    }

    def decorate(score: Score) -> Score:
        for name, reads in kinds.items():
            attack(f"{name}{form}", reads, likelihoods, pairwise=pairwise)(score)
        return score

    return decorate


@on_every_signal("", RATIOS, PAIRWISE)
def online(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out)."""
    (reading,) = readings
    ratio = RATIOS[likelihood]
    return ratio.scores(reading.prepared(ratio.prepare), member, pairs)


@on_every_signal("-raw", RATIOS, PAIRWISE, outputs="loss")
def raw(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out) of the raw signal."""
    (reading,) = readings
    ratio = RATIOS[likelihood]
    return ratio.scores(reading.prepared(ratio.prepare, scaled=False), member, pairs)
