"""Bounds on ε from canaries of simulated mechanisms whose curve is known: rarely above the claim, and not far below it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import polars as pl
import pytest

from mia_audit.canaries.draw import Coins, scored
from mia_audit.evaluation.epsilon_bounds import _by_curve, one_run_f_dp_epsilon, one_run_gaussian_epsilon
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.privacy.gaussian import mu_for

DELTA, CONFIDENCE = 1e-5, 0.95


def randomised_response(member: np.ndarray, epsilon: float, random: np.random.Generator) -> np.ndarray:
    """Release every coin, flipped with probability 1/(1 + e^ε): its curve is that of (ε, 0)-DP. Ties are broken by noise."""
    told = member ^ (random.random(len(member)) < 1 / (1 + math.exp(epsilon)))
    return told + 0.01 * random.random(len(member))


def gaussian(member: np.ndarray, epsilon: float, random: np.random.Generator) -> np.ndarray:
    """Release every coin with Gaussian noise: μ-GDP with the μ that has ε at δ."""
    return random.normal(size=len(member)) + mu_for(epsilon, DELTA) * member


Mechanism = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
F_DP, GAUSSIAN = (
    _by_curve(cache(bound)) for bound in (one_run_f_dp_epsilon, one_run_gaussian_epsilon)
)  # runs repeat counts


def bound(
    mechanism: Mechanism, by: Callable[[pl.DataFrame, float, float], float], epsilon: float, canaries: int, seed: int
) -> float:
    """Return the bound of one run of a mechanism, as `canaries score` and `epsilon-bound` come to it."""
    random = np.random.default_rng([seed, canaries])
    member = random.random(canaries) < 0.5
    table = scored(mechanism(member, epsilon, random), Coins(np.full(canaries, "noise"), member, ""))
    key = ("given", "scores", "none", False)
    values, inside = table["score"].to_numpy()[:, None], (table["member"].to_numpy() == 1)[:, None]
    one = Scored(key, np.zeros(1, dtype=np.int32), np.arange(canaries), inside, values)
    return by(metrics_table(metric_rows(one, (), CONFIDENCE)), DELTA, 1 - CONFIDENCE)


@pytest.mark.parametrize(
    ("mechanism", "by"), [pytest.param(randomised_response, F_DP, marks=pytest.mark.slow), (gaussian, GAUSSIAN)]
)
def test_a_bound_is_rarely_above_the_claim(
    mechanism: Mechanism, by: Callable[[pl.DataFrame, float, float], float]
) -> None:
    above = sum(bound(mechanism, by, 2.0, 1000, seed) > 2 for seed in range(200))
    assert above <= 16


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "by"), [(randomised_response, F_DP), (gaussian, GAUSSIAN)])
@pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0])
def test_ten_thousand_canaries_find_most_of_epsilon(
    mechanism: Mechanism, by: Callable[[pl.DataFrame, float, float], float], epsilon: float
) -> None:
    found = [bound(mechanism, by, epsilon, 10_000, seed) for seed in range(5)]
    assert 0.6 * epsilon <= float(np.mean(found)) <= epsilon
