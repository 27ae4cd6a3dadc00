"""Measure how close bounds from one run come to a Gaussian mechanism's ε, and the error of assuming independent canaries.

    python benchmarks/one_run_bounds.py [RUNS]       (200 runs: two minutes of one core)

The coins of 10,000 canaries are released by a μ-GDP mechanism, and the most confident guesses are counted. `f-DP` is
`one-run-gaussian` (Mahloujifar et al. 2024). `independent` assumes that the losses of canaries are independent, so that
the most confident guesses are right as often as the largest order statistics (our reading of the summary of Xiang et
al. 2025, arXiv 2509.08704). The mechanism `in regimes` is also μ-GDP for every canary, but its noise is shared: with a
probability of 10 %, independently of all coins, every canary lies in the tails that hold 10 % of canaries otherwise. A
bound that holds for this mechanism in 95 % of runs can claim at most the last column for independent canaries.
"""

import sys
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, norm

from mia_audit.evaluation.epsilon_bounds import one_run_gaussian_epsilon
from mia_audit.privacy.gaussian import epsilon_of_gdp, mu_for

CANARIES, DELTA, ALPHA, REGIME = 10_000, 1e-5, 0.05, 0.1


f_dp_epsilon = cache(one_run_gaussian_epsilon)


@cache
def threshold(mu: float, share: float) -> float:
    """Return the distance from 0 beyond which this share of N(±μ/2, 1) lies."""
    return float(brentq(lambda c: norm.sf(c - mu / 2) + norm.sf(c + mu / 2) - share, 0, 60)) if share < 1 else 0.0


def right(mu: float, share: float) -> float:
    """Return how often the sign is right among the given share of observations that are farthest from 0."""
    c = threshold(mu, share)
    return float(norm.sf(c - mu / 2) / (norm.sf(c - mu / 2) + norm.sf(c + mu / 2)))


def observations(mu: float, regimes: bool, random: np.random.Generator) -> np.ndarray:
    """Return the canaries' noisy coins times their coins: N(μ/2, 1); `regimes`: either all are beyond the threshold, or none."""
    if not regimes:
        return random.normal(size=CANARIES) + mu / 2
    c = threshold(mu, REGIME)
    uniform = random.random(CANARIES)
    if random.random() >= REGIME:
        low, high = norm.cdf(-c - mu / 2), norm.cdf(c - mu / 2)
        return norm.ppf(low + uniform * (high - low)) + mu / 2
    positive = random.random(CANARIES) < right(mu, REGIME)
    over = norm.isf(uniform * norm.sf(c - mu / 2)) + mu / 2
    under = mu / 2 - norm.isf(uniform * norm.sf(c + mu / 2))
    return np.where(positive, over, under)


def both(values: np.ndarray, guesses: int) -> tuple[float, float]:
    """Return the two bounds from the most confident guesses."""
    surest = np.argsort(-np.abs(values))[:guesses]
    correct = int((values[surest] > 0).sum())
    return f_dp_epsilon(CANARIES, guesses, correct, ALPHA, DELTA), independent_epsilon(guesses, correct)


@cache
def independent_epsilon(guesses: int, correct: int) -> float:
    """Return the largest ε of a μ-GDP mechanism that is refuted if the canaries' losses are independent."""

    def excess(mu: float) -> float:
        return float(binom.sf(correct - 1, guesses, right(mu, guesses / CANARIES))) - ALPHA

    if excess(1e-4) > 0:
        return 0.0
    return epsilon_of_gdp(float(brentq(excess, 1e-4, 12)) if excess(12) > 0 else 12, DELTA)


def most(mu: float, share: float) -> float:
    """Return the ε of the mechanism in regimes for which 5 % of its runs look like independent canaries of μ-GDP."""
    sure = right(mu, share)
    return epsilon_of_gdp(float(brentq(lambda other: right(other, ALPHA * share) - sure, 1e-3, mu)), DELTA)


def main(runs: int) -> None:
    """Print a row per ε and number of guesses."""
    print("| ε | guesses | f-DP | independent | above ε: f-DP | above ε: independent | most that can be claimed |")
    print("|---|---|---|---|---|---|---|")
    for epsilon in (2.0, 4.0, 8.0):
        mu = mu_for(epsilon, DELTA)
        for guesses in (100, 1000, 5000):
            random = np.random.default_rng([int(epsilon), guesses])
            found = {
                regimes: np.array([both(observations(mu, regimes, random), guesses) for _ in range(runs)])
                for regimes in (False, True)
            }
            means = found[False].mean(axis=0) / epsilon
            above = (found[True] > epsilon).mean(axis=0)
            print(
                f"| {epsilon:g} | {guesses:,} | {means[0]:.0%} | {means[1]:.0%} | {above[0]:.1%} | {above[1]:.1%} "
                f"| {most(mu, guesses / CANARIES) / epsilon:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
