"""Likelihood ratios p(x | in) / p(x | out) of signals over models, and thresholds without shadow models (Shokri et al. 2021).

The ratio of the confidence is LiRA (Carlini et al. 2022). The same ratio reads an attribution's variance, L1 and L2
norm (Huang et al. 2024) and maximum norm; as `lrt` it reads any other signal, as `joint-lrt` several together. Positive
signals are heavy-tailed, so their logarithm is used; the `-raw` forms use the raw signal, and `loss-lira-raw` the raw
loss. Without in models, `-offline` is one-sided (Carlini et al. 2022, section VI-D), and `-offline-two-sided`
−log p(x | out), the form of their code. `authors-lrt` follows the code of Huang et al. 2024, `paper-lrt` their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import AUTHORS, attack
from mia_audit.attacks.design import of_targets
from mia_audit.attacks.engine.joint import JOINT_PAIRWISE, JOINT_RATIOS
from mia_audit.attacks.engine.likelihood import LIKELIHOODS, authors_ratio, likelihood_ratio, offline_ratio
from mia_audit.attacks.engine.ratios import PAIRWISE, RATIOS
from mia_audit.signals.name import Columns, all_but, columns_of, every, named, others, ranks_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.attacks.catalogue import Score
    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading, Signal


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


@on_every_signal("-offline", LIKELIHOODS, LIKELIHOODS)
def one_sided(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by −log P(an out model's value is more like a member's than x)."""
    (reading,) = readings
    return offline_ratio(reading.prepared(columns_of), member, likelihood, reading.signal.members, pairs)


@on_every_signal("-offline-two-sided", LIKELIHOODS, LIKELIHOODS)
def two_sided(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by −log p(x | out)."""
    (reading,) = readings
    return offline_ratio(reading.prepared(columns_of), member, likelihood, "either", pairs)


def confidence_and_l1(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the confidence together with the L1 norm of every explanation; methods that name signals read any other set."""
    confidence = [signal for signal in signals if signal.name == "confidence"]
    return [(*confidence, signal) for signal in signals if confidence and signal.summary == "l1"]


@attack("joint-lrt", reads=confidence_and_l1, likelihoods=JOINT_RATIOS, several=True, pairwise=JOINT_PAIRWISE)
def joint_lrt(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by log p(x | in) − log p(x | out) of vectors of signals with covariances pooled over records."""
    ratio, signals = JOINT_RATIOS[likelihood], [reading.prepared(columns_of) for reading in readings]
    return ratio(signals, member) if pairs is None else ratio(signals, member, pairs)


SUMMARIES = ("variance", "l1", "l2")
"""The summaries of the paper's attacks on explanations."""


def loss_and_summaries(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read the signals of the paper's Table 3: the loss, and variance, L1 and L2 norm of every explanation."""
    return [(signal,) for signal in signals if signal.name == "loss" or signal.summary in SUMMARIES]


def summaries(signals: Sequence[Signal]) -> list[tuple[Signal, ...]]:
    """Read variance, L1 and L2 norm of every explanation."""
    return [(signal,) for signal in signals if signal.summary in SUMMARIES]


@attack(AUTHORS, reads=loss_and_summaries, pairwise=["none"])
def authors_code(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by the Gaussian log ratio of the raw signal, with one standard deviation over all records' in and out means."""
    (reading,) = readings
    return authors_ratio(reading.values, member, pairs)


@attack("paper-lrt", reads=summaries, likelihoods=["per-record"], pairwise=["per-record"])
def algorithms(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by the Gaussian log ratio of the raw signal, with the record's own in and out variances (Algorithms 1 and 3)."""
    (reading,) = readings
    return likelihood_ratio(reading.prepared(columns_of, scaled=False), member, likelihood, pairs)


NARROW = 0.01
"""Smallest range of scores, as a share of the largest score, at which float32 keeps enough digits."""


@attack(
    "threshold", reads=all_but("confidence"), learns=False, pairwise=["none"]
)  # a model's confidence ranks its records as its loss does
def threshold(
    readings: Sequence[Reading], member: Bool[np.ndarray, "N K"], likelihood: str, pairs: Pairs | None = None
) -> Float[np.ndarray, "N K"]:
    """Score by −signal if members are low, by +signal if they are high. Ranks replace scores if float32 would create ties."""
    (reading,) = readings
    values, high = reading.prepared(Columns.stored, scaled=False), reading.signal.members == "high"
    if not _fits(values):
        ranks = [ranks_of(column if high else -column) for column in values.T]
        return of_targets(np.stack(ranks, axis=1), pairs)
    scores: Float[np.ndarray, "N K"] = of_targets(values, pairs).astype(np.float32)
    return scores if high else np.negative(scores, out=scores)


def _fits(scores: Float[np.ndarray, "N K"]) -> bool:
    """Return whether float32, in which scores are stored, represents these scores, of either sign, and their differences."""
    room, low, high = np.finfo(np.float32), float(scores.min()), float(scores.max())
    if low == high:
        return True
    largest, least = max(-low, high), max(low, -high)
    if least <= 0:  # scores lie on both sides of 0, or one is 0
        least = min(np.abs(column).min(where=column != 0, initial=np.inf) for column in scores.T)
    return bool(least > room.tiny and largest < room.max and high - low > NARROW * largest)
