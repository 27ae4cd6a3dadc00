"""Lower bounds on ε: fixed points, closed forms, and how often they claim a leak where there is none."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats

from mia_audit.attacks.hierarchical import hierarchical_ratio
from mia_audit.evaluation.bounds import bounds, bounds_table
from mia_audit.evaluation.epsilon import (
    clopper_pearson_epsilon,
    epsilon_of_gdp,
    gaussian_epsilon,
    held_out_threshold,
    one_run_epsilon,
)
from mia_audit.evaluation.files import Scored


def test_clopper_pearson_at_its_fixed_point():
    assert clopper_pearson_epsilon(500, 0, 500, 500, alpha=0.01) == pytest.approx(4.54, abs=0.005)


def test_one_run_at_its_fixed_point():
    """The published figure is the lower end after 20 bisections of [0, 6]."""
    assert one_run_epsilon(1000, 600, 600, alpha=0.05, delta=1e-5) == pytest.approx(5.27039909, abs=6 / 2**20)


def test_clopper_pearson_agrees_with_scipy_s_interval():
    fnr = stats.binomtest(120, 400).proportion_ci(0.95, method="exact").high
    fpr = stats.binomtest(31, 500).proportion_ci(0.95, method="exact").high
    expected = max(np.log((1 - fnr - 0.01) / fpr), np.log((1 - fpr - 0.01) / fnr))
    assert clopper_pearson_epsilon(280, 31, 400, 500, alpha=0.05, delta=0.01) == pytest.approx(expected)


def test_the_errors_are_exchangeable():
    assert clopper_pearson_epsilon(100, 0, 1000, 1000, 0.05) == pytest.approx(
        clopper_pearson_epsilon(1000, 900, 1000, 1000, 0.05)
    )


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-5, 1e-2])
def test_gdp_agrees_with_root_finding(mu, delta):
    def excess(epsilon):
        return stats.norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * stats.norm.cdf(-epsilon / mu - mu / 2) - delta

    expected = optimize.brentq(excess, 0, 100) if excess(0) > 0 else 0.0
    assert epsilon_of_gdp(mu, delta) == pytest.approx(expected, abs=1e-6)


def test_the_gaussian_bound_uses_what_clopper_pearson_cannot():
    loose = clopper_pearson_epsilon(6915, 3085, 10_000, 10_000, alpha=0.05, delta=1e-5)
    tight = gaussian_epsilon(6915, 3085, 10_000, 10_000, alpha=0.05, delta=1e-5)
    assert loose < tight < epsilon_of_gdp(1.0, 1e-5)


def test_bounds_are_below_the_truth_for_randomised_response():
    """ε-DP randomised response at its own ε: at most α of the bounds may exceed it."""
    rng, epsilon = np.random.default_rng(0), 1.5
    right = 1 / (1 + np.exp(-epsilon))
    pairs = rng.binomial(400, right, size=(400, 2))
    exceeded = [clopper_pearson_epsilon(int(a), 400 - int(b), 400, 400, 0.1) > epsilon for a, b in pairs]
    assert np.mean(exceeded) <= 0.1
    one_run = [one_run_epsilon(800, 800, int(a + b), 0.1, 0.0) for a, b in pairs]
    assert np.mean(np.array(one_run) > epsilon) <= 0.13 and np.median(one_run) > 1.2


def draw(rng, records=150, targets=6, shift=0.0):
    member = rng.random((records, targets)) < 0.5
    scores = (rng.normal(size=member.shape) + shift * member).astype(np.float32)
    return Scored(("a", "s", "v", False), np.arange(targets), np.arange(records), member, scores)


def test_null_runs_claim_a_leak_no_more_often_than_the_level():
    rng = np.random.default_rng(0)
    claims = [[row["epsilon"] > 0 for row in bounds(draw(rng), 1e-5, 0.9, bernoulli=True)] for _ in range(300)]
    rates = np.mean(claims, axis=0)
    assert len(rates) == 3 and (rates <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 300)).all()


def test_null_runs_of_leave_one_out_attacks_keep_the_level_though_targets_share_their_models():
    rng, claims = np.random.default_rng(2), []
    for _ in range(60):
        scored = draw(rng, records=200, targets=8)
        scores = hierarchical_ratio(scored.score.astype(float), scored.member).astype(np.float32)
        claims.append([row["epsilon"] > 0 for row in bounds(replace(scored, score=scores), 1e-5, 0.9, bernoulli=True)])
    assert (np.mean(claims, axis=0) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 60)).all()


def test_a_leak_is_found_and_its_counts_are_of_the_other_targets():
    table = bounds_table(bounds(draw(np.random.default_rng(1), records=2000, shift=2.0), 1e-5, 0.95, bernoulli=True))
    assert table["method"].to_list() == ["clopper-pearson", "gaussian", "one-run"]
    assert (table["epsilon"] > 0.5).all()
    assert table["members"][0] + table["non_members"][0] == 2000 * 3


def test_a_threshold_is_chosen_among_the_scores():
    scores, member = np.array([0.0, 1.0, np.nan, 2.0, 3.0] * 40), np.array([False, False, True, True, True] * 40)
    assert held_out_threshold(scores, member, 0.05) == 2.0
