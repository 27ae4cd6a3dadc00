"""The attacks of Huang et al. 2024 as published: `authors-lrt` follows their code, `paper-lrt` their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.catalogue import AUTHORS, attack
from mia_audit.attacks.engine.authors import authors_ratio
from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.signals.columns import columns_of

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float

    from mia_audit.attacks.design import Pairs
    from mia_audit.signals.name import Reading, Signal

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
