"""A screen of one model, with up to two references: thresholds whose false-positive rates are measured on non-members.

A positive result is a leak; a negative one is no evidence of safety, because attacks with shadow models are several
times stronger. The TPR at a false-positive rate has two unknowns: the threshold with this rate, and the share of
members beyond it. The interval's lower end is for a threshold whose rate is surely not higher, its upper end for one
whose rate is surely not lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.evaluation.metrics import clopper_pearson
from mia_audit.signals.name import Reading, read_signal

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from mia_audit.signals.name import Member

    Scores = Float[np.ndarray, " n"]

REFERENCED = (("base", "loss", "none"), ("rmia-offline", "loss", "none"), ("loss-lira-offline", "confidence", "pooled"))
"""Attack, signal and likelihood of screens with references: attacks that need only one other model."""

FOLDS = 2
"""Number of folds of the non-members: the quantiles of each fold are learned on the others."""


@dataclass(frozen=True)
class Screened:
    """The TPR at an FPR of one model, with its interval; `resolved` is False if there are too few non-members for a lower limit."""

    fpr: float
    tpr: float
    low: float
    high: float
    resolved: bool

    def verdict(self) -> str:
        """Return the screen's verdict in words."""
        if not self.resolved:
            return "cannot tell: too few non-members for this false-positive rate"
        if self.low > self.fpr:
            return "leaks: members are recognised more often than non-members"
        return "no better than guessing, which is no evidence of safety"


def screen(inside: Scores, outside: Scores, fpr: float, confidence: float) -> Screened:
    """Return the TPR at an FPR from the scores of members and of non-members, higher meaning more likely a member.

    The false-positive rate of a threshold at the j-th largest of n non-members' scores is below a Beta(j, n − j + 1)
    quantile (Wilks 1941), and the number of members beyond a threshold is binomial (Clopper and Pearson 1934). Each of
    these two steps uses half of 1 − confidence, at both ends.
    """
    from scipy.stats import beta

    alpha = (1 - confidence) / 2
    ordered, count = np.sort(outside)[::-1], len(outside)
    ranks = np.arange(1, count + 1)
    rates = beta.cdf(fpr, ranks, count - ranks + 1)  # probability that the j-th largest has at most this rate
    strict = int((rates >= 1 - alpha / 2).sum())
    loose = count - int((rates <= alpha / 2).sum())
    point = ordered[int(np.floor(fpr * count))] if fpr * count >= 1 else np.inf
    hits = [int((inside > bound).sum()) for bound in (ordered[strict - 1] if strict else np.inf, point)]
    most = int((inside >= ordered[loose]).sum()) if loose < count else len(inside)
    low = clopper_pearson(hits[0], len(inside), 1 - alpha)[0] if strict else 0.0
    return Screened(fpr, hits[1] / len(inside), low, clopper_pearson(most, len(inside), 1 - alpha)[1], strict > 0)


def against_references(
    signals: Mapping[str, Float[np.ndarray, "n m"]], member: Member
) -> Iterator[tuple[tuple[str, str, str], Scores]]:
    """Yield the scores of the first of m models by every attack of `REFERENCED`, with the other models as references.

    Scores are NaN for records that an attack cannot score: offline attacks need a reference that was not trained on the
    record. The references' memberships must be independent of the target's.
    """
    for attack, signal, likelihood in REFERENCED:
        reading = Reading(read_signal(signal), [signals[signal]])
        yield (attack, signal, likelihood), attacks[attack].score([reading], member, likelihood)[:, 0]


def beyond_quantile(
    features: Float[np.ndarray, "n d"], values: Scores, member: np.ndarray, fpr: float, seed: int
) -> tuple[Scores, Scores]:
    """Return the amount by which members' and non-members' values exceed a quantile of similar non-members (Bertran et al. 2023).

    The 1 − FPR quantile of a value, given a record's features, is learned by boosting on non-members. A non-member is
    compared with the quantile that was learned without that record, a member with the mean of the folds' quantiles.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    outside = np.flatnonzero(~member)
    folds: Int[np.ndarray, " n"] = np.random.default_rng(seed).permutation(len(outside)) % FOLDS
    expected, of_members = np.empty(len(outside)), []
    for fold in range(FOLDS):
        model = HistGradientBoostingRegressor(loss="quantile", quantile=1 - fpr, random_state=seed, max_iter=50)
        model.fit(features[outside[folds != fold]], values[outside[folds != fold]])
        expected[folds == fold] = model.predict(features[outside[folds == fold]])
        of_members.append(model.predict(features[member]))
    return values[member] - np.mean(of_members, axis=0), values[outside] - expected
