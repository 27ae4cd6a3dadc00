"""A claim that holds is rejected at most as often as the level says, however one stops, and one that does not soon."""

import math

import numpy as np
import pytest

from .sequential import Evidence


def counted(pairs):
    evidence = Evidence()
    evidence.add(*np.array(list(pairs), dtype=bool).T)
    return evidence


@pytest.mark.parametrize(("q", "epsilon", "delta"), [(0.3, 1.0, 0.0), (0.01, 3.0, 1e-2), (0.5, 0.1, 1e-5)])
def test_a_claim_that_just_holds_is_rarely_rejected_at_any_time(q, epsilon, delta):
    random = np.random.default_rng(0)
    p, rejected, runs = math.exp(epsilon) * q + delta, 0, 400
    for _ in range(runs):
        evidence = Evidence()
        trials = random.random((2, 400)) < np.array([[p], [q]])
        for look in range(0, 400, 5):
            evidence.add(*trials[:, look : look + 5])
            if evidence.log_wealth(epsilon, delta) >= math.log(1 / 0.1):
                rejected += 1
                break
    assert rejected <= 0.1 * runs + 3 * math.sqrt(0.09 * runs)


def test_a_claim_that_is_far_off_is_rejected_soon():
    always = counted([(True, False)] * 40)
    assert always.lower_bound(0.001, 0.0) > 1.0
    assert always.log_wealth(1.0, 1e-5) > math.log(1000)
    assert counted([(True, False)] * 5000).lower_bound(0.001, 0.0) > 5.5


def test_the_bound_comes_near_the_truth():
    random = np.random.default_rng(1)
    q = 0.1
    evidence = counted(zip(random.random(20_000) < math.e * q, random.random(20_000) < q, strict=True))
    assert 0.85 < evidence.lower_bound(0.01, 0.0) <= 1.0


def test_an_event_that_is_equally_likely_refutes_nothing():
    assert counted([(True, True), (False, False)] * 30).lower_bound(0.01, 0.0) == 0


def test_the_largest_epsilon_is_the_one_that_is_rejected_at_its_level():
    evidence = Evidence(both=3, first=300, second=10, neither=87)
    bound = evidence.lower_bound(0.05, 1e-3)
    assert evidence.log_wealth(bound, 1e-3) == pytest.approx(math.log(20), abs=1e-3)
    assert (evidence.trials, evidence.on_first, evidence.on_second) == (400, 303, 13)
