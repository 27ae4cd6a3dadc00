"""Empirical ε: lower bounds that an attack proves on what its training leaked, each at a stated confidence.

All bounds are one-sided at level 1 − α, and 0 where the attack proves nothing. Adjacency is add/remove of one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

RANGE = 200.0
"""No bound is looked for above this ε."""


def clopper_pearson_epsilon(
    true_positives: int, false_positives: int, members: int, non_members: int, alpha: float, delta: float = 0.0
) -> float:
    """Bound ε from the errors at one threshold fixed beforehand (Nasr et al. 2021; Zanella-Béguelin et al. 2023).

    Both error rates are bounded above at 1 − α/2 each (Clopper and Pearson): any (ε, δ)-DP training has
    1 − FNR ≤ e^ε FPR + δ, and likewise with the errors exchanged.
    """
    fnr, fpr = _error_bounds(true_positives, false_positives, members, non_members, alpha)
    return max(0.0, _log_ratio(1 - fnr - delta, fpr), _log_ratio(1 - fpr - delta, fnr))


def gaussian_epsilon(
    true_positives: int, false_positives: int, members: int, non_members: int, alpha: float, delta: float
) -> float:
    """Bound ε at δ from the errors at one threshold fixed beforehand, if the mechanism is Gaussian (Nasr et al. 2023).

    The errors bound μ of Gaussian DP, μ ≥ Φ⁻¹(1 − FPR) − Φ⁻¹(FNR); ε is the one that μ-GDP has at δ. Not valid for
    training without noise, or with other noise.
    """
    from scipy.special import ndtri

    fnr, fpr = _error_bounds(true_positives, false_positives, members, non_members, alpha)
    return epsilon_of_gdp(max(0.0, float(ndtri(1 - fpr) - ndtri(fnr))), delta)


def epsilon_of_gdp(mu: float, delta: float) -> float:
    """Return the ε at which μ-GDP is (ε, δ)-DP: δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) (Dong et al. 2022, corollary 1)."""
    from scipy.special import log_ndtr

    def spent(epsilon: float) -> float:
        tails = log_ndtr([-epsilon / mu + mu / 2, -epsilon / mu - mu / 2])
        return float(np.exp(tails[0]) - np.exp(epsilon + tails[1]))

    if mu <= 0 or spent(0.0) <= delta:
        return 0.0
    return _largest(lambda epsilon: spent(epsilon) > delta)


def one_run_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε from one training run on fair coins, for `bernoulli` membership only (Steinke et al. 2023, theorem 5.2).

    Of `records` whose membership was a fair coin each, `guesses` were guessed and `correct` of them rightly; how many
    are guessed, and on which side, must have been fixed before the scores were seen.
    """
    if correct == 0 or _one_run_p_value(records, guesses, correct, 0.0, delta) > alpha:
        return 0.0
    return _largest(lambda epsilon: _one_run_p_value(records, guesses, correct, epsilon, delta) < alpha)


def held_out_threshold(
    scores: Float[np.ndarray, " n"], member: Bool[np.ndarray, " n"], alpha: float, delta: float = 0.0
) -> float:
    """Return the threshold whose Clopper–Pearson bound is the largest; good for a bound on other targets, not on these."""
    scored = ~np.isnan(scores)
    inside, outside = np.sort(scores[scored & member]), np.sort(scores[scored & ~member])
    candidates = np.unique(np.quantile(np.concatenate([inside, outside]), np.linspace(0, 1, 513), method="nearest"))
    true_positives = len(inside) - np.searchsorted(inside, candidates)
    false_positives = len(outside) - np.searchsorted(outside, candidates)
    bounds = [
        clopper_pearson_epsilon(int(tp), int(fp), len(inside), len(outside), alpha, delta)
        for tp, fp in zip(true_positives, false_positives, strict=True)
    ]
    return float(candidates[int(np.argmax(bounds))])


def _error_bounds(tp: int, fp: int, members: int, non_members: int, alpha: float) -> tuple[float, float]:
    """Return the upper bounds of FNR and FPR, jointly at 1 − α."""
    return _upper(members - tp, members, alpha / 2), _upper(fp, non_members, alpha / 2)


def _upper(errors: int, trials: int, alpha: float) -> float:
    from scipy.special import betaincinv

    return 1.0 if errors >= trials else float(betaincinv(errors + 1, trials - errors, 1 - alpha))


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else 0.0


def _one_run_p_value(records: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the chance of so many right guesses under (ε, δ)-DP: a binomial tail, and what δ may add to it."""
    from scipy.stats import binom

    accuracy = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, accuracy))
    if delta == 0.0:
        return min(tail, 1.0)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy)) / np.arange(1, correct + 1)
    return min(tail + float(below.max()) * delta * 2 * records, 1.0)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest ε at which a property that holds from 0 on still does, to double precision."""
    low, high = 0.0, RANGE
    if holds(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
