"""Empirical ε: lower bounds on the leak of a training run, proved by an attack at a stated confidence.

All bounds are one-sided at level 1 − α, and 0 where the attack proves nothing. Adjacency is add/remove of one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mia_audit.privacy.gaussian import epsilon_of_gdp

Count = int | np.ndarray

RANGE = 200.0
"""The search for a bound stops at this ε."""

LARGEST_MU = 20.0
"""The search for a bound stops at this μ of Gaussian DP, whose ε exceeds `LARGEST`."""

GRID = 64
"""Number of parameters that are tried at once."""


def clopper_pearson_epsilon(
    true_positives: Count, false_positives: Count, members: Count, non_members: Count, alpha: float, delta: float = 0.0
) -> float:
    """Bound ε from the errors at one threshold fixed beforehand (Nasr et al. 2021; Zanella-Béguelin et al. 2023).

    Both error rates are bounded above at 1 − α/2 each (Clopper and Pearson): any (ε, δ)-DP training run has 1 − FNR ≤
    e^ε FPR + δ, and likewise with the errors exchanged. For arrays of counts, return the largest bound; each bound has
    level 1 − α.
    """
    fnr, fpr = _error_bounds(true_positives, false_positives, members, non_members, alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = [np.log(np.maximum(1 - above - delta, 0) / below) for above, below in ((fnr, fpr), (fpr, fnr))]
    return max(0.0, *(float(values.max()) for values in bounds))


def gaussian_epsilon(
    true_positives: Count, false_positives: Count, members: Count, non_members: Count, alpha: float, delta: float
) -> float:
    """Bound ε at δ from the errors at one threshold fixed beforehand, if the mechanism is Gaussian (Nasr et al. 2023).

    The errors bound μ of Gaussian DP, μ ≥ Φ⁻¹(1 − FPR) − Φ⁻¹(FNR); ε is that of μ-GDP at δ. The bound is not valid for
    training without noise, or with other noise. For arrays of counts, return the largest bound; each bound has level 1
    − α.
    """
    from scipy.special import ndtri

    fnr, fpr = _error_bounds(true_positives, false_positives, members, non_members, alpha)
    return min(RANGE, epsilon_of_gdp(max(0.0, float(np.max(ndtri(1 - fpr) - ndtri(fnr)))), delta))


def one_run_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε from one training run on fair coins, for `bernoulli` membership only (Steinke et al. 2023, theorem 5.2).

    A fair coin decided the membership of each of the `records`. For `guesses` of them the membership was guessed, and
    `correct` guesses were right. The number of guesses on either side must have been fixed before the scores were seen.
    """
    if correct == 0 or _one_run_p_value(records, guesses, correct, 0.0, delta) > alpha:
        return 0.0
    return _largest(lambda epsilon: _one_run_p_value(records, guesses, correct, epsilon, delta) < alpha)


def one_run_f_dp_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε from one training run on fair coins by the trade-off curve of (ε, δ)-DP itself (Mahloujifar et al. 2024, algorithm 3).

    It has the same assumptions as `one_run_epsilon` but allows a larger δ; `one_run_epsilon` multiplies δ by the number
    of records.
    """

    def curve(shown: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
        low: np.ndarray = np.exp(-epsilon) * (shown - delta)
        values: np.ndarray = np.maximum(low, 1 - np.exp(epsilon) * (1 - shown) - delta)
        return values

    return _largest_refuted(records, guesses, correct, alpha, curve, RANGE)


def one_run_gaussian_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε at δ from one training run on fair coins, if the mechanism is Gaussian (Mahloujifar et al. 2024, algorithm 3).

    The guesses refute μ-Gaussian DP up to some μ. The bound is the ε of that μ at δ.
    """
    from scipy.special import ndtr, ndtri

    def curve(shown: np.ndarray, mu: np.ndarray) -> np.ndarray:
        values: np.ndarray = ndtr(ndtri(np.clip(shown, 0, 1)) - mu)
        return values

    return min(RANGE, epsilon_of_gdp(_largest_refuted(records, guesses, correct, alpha, curve, LARGEST_MU), delta))


def _largest_refuted(
    records: int,
    guesses: int,
    correct: int,
    alpha: float,
    curve: Callable[[np.ndarray, np.ndarray], np.ndarray],
    largest: float,
) -> float:
    """Return the largest parameter at which a claimed curve is refuted by `correct` right guesses, at level α.

    `curve(x, parameter)` is the claim's inverse blow-up: the smallest probability that an event can have without the
    record if it has probability x with it. The parameter is searched on successive grids of `GRID` values. Each grid
    refines the interval between the largest refuted value of the previous grid and the next value.
    """
    low, high = 0.0, largest
    while high - low > 1e-9 * max(1.0, low):
        grid = np.linspace(low, high, GRID)
        refuted = _refuted(records, guesses, correct, alpha, curve, grid)
        if not refuted[0]:
            return 0.0
        if refuted.all():
            return high
        first = int(np.argmin(refuted))
        low, high = float(grid[first - 1]), float(grid[first])
    return low


def _refuted(
    records: int,
    guesses: int,
    correct: int,
    alpha: float,
    curve: Callable[[np.ndarray, np.ndarray], np.ndarray],
    parameters: np.ndarray,
) -> np.ndarray:
    """Return which claims are refuted: those that imply a larger expected number of guesses than were made.

    R and H bound the expected right and wrong guesses per record in runs with at least i right guesses, for i from
    `correct` down.
    """
    right = np.full(len(parameters), alpha * correct / records)
    wrong = np.full(len(parameters), alpha * (guesses - correct) / records)
    for place in range(correct - 1, -1, -1):
        more = np.maximum(wrong, curve(right, parameters))
        right = np.minimum(right + place / (guesses - place) * (more - wrong), 1.0)
        wrong = more
    refuted: np.ndarray = right + wrong > guesses / records
    return refuted


def one_run_bound(guesses: np.ndarray, correct: np.ndarray, alpha: float | np.ndarray) -> np.ndarray:
    """Return the bounds of `one_run_epsilon` at δ = 0, in closed form and for arrays; no bound with δ > 0 is larger."""
    from scipy.special import betaincinv

    right = np.maximum(correct, 1)
    accuracy = np.where(correct > 0, betaincinv(right, guesses - np.minimum(right, guesses) + 1, alpha), 0.0)
    bounds: np.ndarray = np.maximum(np.log(np.maximum(accuracy, 0.5)) - np.log1p(-np.maximum(accuracy, 0.5)), 0)
    return bounds


def _error_bounds(
    tp: Count, fp: Count, members: Count, non_members: Count, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper bounds of FNR and FPR, jointly at 1 − α."""
    return _upper(np.subtract(members, tp), members, alpha / 2), _upper(fp, non_members, alpha / 2)


def _upper(errors: Count, trials: Count, alpha: float) -> np.ndarray:
    from scipy.special import betaincinv

    left = np.subtract(trials, errors)
    return np.where(left <= 0, 1.0, betaincinv(np.add(errors, 1), np.maximum(left, 1), 1 - alpha))


def _one_run_p_value(records: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least this many correct guesses under (ε, δ)-DP: a binomial tail, plus what δ can add to it."""
    from scipy.stats import binom

    accuracy = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, accuracy))
    if delta == 0.0:
        return min(tail, 1.0)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy)) / np.arange(1, correct + 1)
    return min(tail + float(below.max()) * delta * 2 * records, 1.0)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest ε, to nine decimals, up to which a property holds. The property must hold at 0."""
    low, high = 0.0, RANGE
    if holds(high):
        return high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
