"""Lower bounds on ε: fixed points, closed forms, and how often they claim a leak where there is none."""

import numpy as np
import polars as pl
import pytest
from scipy import optimize, stats

from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.epsilon_bounds import (
    GUESSES,
    METHODS,
    THRESHOLDS,
    bounds_table,
    clopper_pearson_epsilon,
    gaussian_epsilon,
    levels,
    lower_bounds,
    one_run_bound,
    one_run_epsilon,
    one_run_f_dp_epsilon,
    one_run_gaussian_epsilon,
)
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.evaluation.metrics import SHARES
from mia_audit.privacy.gaussian import epsilon_of_gdp


def test_clopper_pearson_at_its_fixed_point():
    assert clopper_pearson_epsilon(500, 0, 500, 500, alpha=0.01) == pytest.approx(4.54, abs=0.005)


def test_one_run_at_its_fixed_point():
    """The published figure is the lower end after 20 bisections of [0, 6]."""
    assert one_run_epsilon(1000, 600, 600, alpha=0.05, delta=1e-5) == pytest.approx(5.27039909, abs=6 / 2**20)


@pytest.mark.parametrize(
    ("records", "guesses", "correct", "delta", "steinke", "gaussian", "f_dp"),
    [
        (1000, 1000, 600, 1e-5, 0.297, 0.584, 0.292),
        (1000, 1000, 700, 1e-5, 0.732, 1.372, 0.726),
        (1000, 1000, 900, 1e-5, 2.021, 3.779, 2.013),
        (1000, 100, 90, 1e-5, 1.626, 2.456, 1.614),
        (20_000, 200, 190, 1e-5, 2.299, None, 2.377),
        (1000, 100, 100, 1e-3, 0.81, None, 3.42),
    ],
)
def test_one_run_bounds_of_trade_off_curves(records, guesses, correct, delta, steinke, gaussian, f_dp):
    """Computed by jax_privacy's implementation of Mahloujifar et al. 2024 and of Steinke et al. 2023, at 95 %."""
    given = (records, guesses, correct, 0.05, delta)
    assert one_run_epsilon(*given) == pytest.approx(steinke, abs=0.005)
    assert one_run_f_dp_epsilon(*given) == pytest.approx(f_dp, abs=0.005)
    if gaussian:
        assert one_run_gaussian_epsilon(*given) == pytest.approx(gaussian, abs=0.005)


def test_guesses_at_chance_refute_no_curve():
    for bound in (one_run_f_dp_epsilon, one_run_gaussian_epsilon):
        assert (
            bound(1000, 200, 100, 0.05, 1e-5) == bound(1000, 200, 0, 0.05, 1e-5) == bound(1000, 0, 0, 0.05, 1e-5) == 0
        )


def test_curves_of_a_gaussian_mechanism_keep_their_level():
    """A record's score is Gaussian around its membership: exactly μ-GDP, and the largest ε that the Gaussian bound may show."""
    rng, mu, delta, exceeded = np.random.default_rng(4), 1.0, 1e-5, []
    for _ in range(100):
        member = rng.random(1000) < 0.5
        order = np.argsort(rng.normal(size=1000) + mu * member)
        correct = int(member[order[-100:]].sum() + (~member[order[:100]]).sum())
        exceeded.append(one_run_gaussian_epsilon(1000, 200, correct, 0.1, delta) > epsilon_of_gdp(mu, delta))
    assert np.mean(exceeded) <= 0.1


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


def test_arrays_of_counts_give_the_largest_of_their_bounds():
    counts = [(280, 31, 400, 500), (400, 0, 400, 500), (0, 500, 400, 500), (200, 250, 400, 500)]
    for bound in (clopper_pearson_epsilon, gaussian_epsilon):
        single = [bound(*each, 0.05, 1e-3) for each in counts]
        assert bound(*np.array(counts).T, 0.05, 1e-3) == max(single) > min(single) == 0


def test_the_closed_form_is_the_one_run_bound_without_delta():
    guesses, correct = np.array([10, 10, 600, 600, 5, 0]), np.array([0, 10, 600, 450, 2, 0])
    expected = [one_run_epsilon(1000, int(g), int(c), 0.05, 0.0) for g, c in zip(guesses, correct, strict=True)]
    np.testing.assert_allclose(one_run_bound(guesses, correct, 0.05), expected, atol=1e-6)
    assert one_run_epsilon(1000, 600, 450, 0.05, 1e-5) < expected[3]


def evaluated(rng, records=150, targets=6, shift=0.0, attack=None):
    member = rng.random((records, targets)) < 0.5
    scores = rng.normal(size=member.shape) + shift * member
    scores = (attack(scores, member) if attack else scores).astype(np.float32)
    scored = Scored(("a", "s", "v", False), np.arange(targets), np.arange(records), member, scores)
    return metrics_table(metric_rows(scored, (), 0.95))


def test_null_audits_claim_a_leak_no_more_often_than_the_level():
    """Leave-one-out attacks share their models: targets are not independent, and bounds must hold all the same."""
    rng, level = np.random.default_rng(2), 0.3
    claims = [
        [value > 0 for value in lower_bounds(evaluated(rng, attack=attack), 0.0, level, bernoulli=True).values()]
        for attack in (None, RATIOS["hierarchical"])
        for _ in range(150)
    ]
    assert (np.mean(claims, axis=0) <= level + 2 * np.sqrt(level * (1 - level) / 300)).all()


@pytest.mark.parametrize("share", range(len(THRESHOLDS)))
def test_one_target_and_one_share_keep_the_level(share):
    """Without the correction for the largest of many, a bound is above 0 about as often as it may be."""
    rng, level, records = np.random.default_rng(share), 0.2, 400
    called = max(1, int(THRESHOLDS[share] * records))
    members = rng.binomial(records, 0.5, 2000)
    true = rng.hypergeometric(members, records - members, called)
    claims = [
        clopper_pearson_epsilon(int(t), called - int(t), int(m), records - int(m), level) > 0
        for t, m in zip(true, members, strict=True)
    ]
    assert np.mean(claims) <= level


@pytest.mark.parametrize("bound", [one_run_epsilon, one_run_f_dp_epsilon, one_run_gaussian_epsilon])
@pytest.mark.parametrize(("records", "guesses"), [(300, 60), (1000, 1000)])
def test_one_run_bounds_keep_their_level_exactly(bound, records, guesses):
    """Right guesses of randomised response are binomial: the chance of a bound above its ε is a sum, and no simulation."""
    for epsilon in (0.0, 0.5, 2.0):
        if bound is one_run_gaussian_epsilon and epsilon:  # randomised response is no Gaussian mechanism
            continue
        right = stats.binom(guesses, 1 / (1 + np.exp(-epsilon)))
        low, high = int(right.ppf(0.5)), int(right.isf(1e-6))
        while high - low > 1:  # bounds grow with the right guesses
            middle = (low + high) // 2
            low, high = (low, middle) if bound(records, guesses, middle, 0.1, 1e-9) > epsilon else (middle, high)
        assert 0.1 / 50 < right.sf(high - 1) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_bounds_keep_their_level_in_a_thousand_audits(epsilon):
    """Scores that are ε-DP of each membership bit."""
    rng, level, exceeded = np.random.default_rng(1), 0.2, []
    for _ in range(1000):
        member = rng.random((300, 2)) < 0.5
        told = np.where(rng.random(member.shape) < 1 / (1 + np.exp(-epsilon)), member, ~member)
        scores = (told + 0.1 * rng.random(member.shape)).astype(np.float32)
        scored = Scored(("a", "s", "v", False), np.arange(2), np.arange(300), member, scores)
        metrics = metrics_table(metric_rows(scored, (), 0.95))
        names = ("one-run", "clopper-pearson") if epsilon else METHODS
        exceeded.append([METHODS[name](metrics, 0.0, level) > epsilon + 1e-9 for name in names])
    assert (np.mean(exceeded, axis=0) <= level).all()


def test_a_leak_is_found_by_every_method_and_more_attacks_cost_level():
    metrics = evaluated(np.random.default_rng(1), records=2000, shift=2.0)
    table = bounds_table(metrics, 1e-5, 0.95, bernoulli=True, gaussian=True)
    assert table["method"].to_list() == [
        "one-run",
        "one-run-f-dp",
        "one-run-gaussian",
        "clopper-pearson",
        "gaussian",
    ]
    assert (table["epsilon"] > 0.5).all() and (table["delta"] == 1e-5).all()
    both = pl.concat([metrics, metrics.with_columns(attack=pl.lit("b"))])
    assert lower_bounds(both, 1e-5, 0.05, True)["one-run"] < table["epsilon"][0]
    assert list(lower_bounds(metrics, 1e-5, 0.05, bernoulli=False)) == ["clopper-pearson"]
    assert list(lower_bounds(metrics, 1e-5, 0.05, bernoulli=True)) == ["one-run", "one-run-f-dp", "clopper-pearson"]


def test_what_is_called_does_not_depend_on_membership_and_both_ends_are_guessed():
    scores, member = (
        np.array([[0.0], [1.0], [1.0], [2.0]], dtype=np.float32),
        np.array([[1], [0], [1], [1]], dtype=bool),
    )
    scored = Scored(("a", "s", "v", False), np.arange(1), np.arange(4), member, scores)
    row = metrics_table(metric_rows(scored, (), 0.95)).row(0, named=True)
    counts = [(row[f"members_in_top_{share:g}"], row[f"non_members_in_top_{share:g}"]) for share in SHARES]
    assert counts == [(0, 0)] * 4 + [(1, 0)] + [(2, 1)] * 3  # of tied records all are called, or none
    assert all(1 - low in SHARES for _, low in GUESSES if low)
    assert set(THRESHOLDS) <= set(SHARES)


def test_the_levels_of_all_guesses_add_up_and_go_by_nothing_but_the_number_of_records():
    for records, chosen in ((1000, (0.1, 0.1)), (10_000, (0.025, 0.025))):
        shared = levels(np.full((3, len(GUESSES)), records), 0.05)
        assert shared.sum() == pytest.approx(0.05)
        assert (shared.argmax(axis=1) == GUESSES.index(chosen)).all()
    assert (np.ptp(shared, axis=0) == 0).all()


def test_metrics_without_a_scored_target_prove_nothing():
    nothing = evaluated(np.random.default_rng(0)).with_columns(auc=pl.lit(None, dtype=pl.Float64))
    assert set(lower_bounds(nothing, 1e-5, 0.05, bernoulli=True).values()) == {0.0}
