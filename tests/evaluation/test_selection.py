"""The interval of the strongest attack allows for its choice."""

import numpy as np
import pytest

from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.selection import after_selection, selection_errors


def test_one_attack_keeps_its_own_interval():
    over = OverTargets(np.random.default_rng(0).normal(0.6, 0.02, 9))
    found = after_selection([over], 0.95)
    assert (found.mean, found.low, found.high) == (over.mean, *over.interval(0.95))


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_the_chosen_attacks_interval_holds_though_it_was_chosen(correlation):
    """16 equal attacks on 9 independent targets: 95 % asked, at most 1.25 times the width of a fixed attack's."""
    random, held, fixed, bias, widths = np.random.default_rng(1), 0, 0, 0.0, []
    for _ in range(150):
        own, common = random.normal(size=(16, 9)), random.normal(size=(1, 9))
        values = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        means, errors = values.mean(axis=1), values.std(axis=1, ddof=1) / 3
        shift, below, above = selection_errors(means, errors, values, 0.95, draws=500)
        best = int(np.argmax(means))
        held += -above * errors[best] <= means[best] <= below * errors[best]
        fixed += abs(means[best]) <= 2.306 * errors[best]
        bias += (means[best] - shift * errors[best]) / 150
        widths.append((below + above) * errors[best] / (2 * 2.306 * errors.mean()))
    assert held >= 0.92 * 150 > fixed if correlation == 0 else held >= 0.92 * 150
    assert abs(bias) < 0.1 and np.mean(widths) < 1.25


def test_an_attack_far_above_the_others_is_hardly_corrected():
    random = np.random.default_rng(2)
    overs = [OverTargets(random.normal(mean, 0.01, 9)) for mean in (0.9, 0.5, 0.5, 0.5)]
    found, own = after_selection(overs, 0.95), overs[0].interval(0.95)
    assert found.mean == pytest.approx(overs[0].mean, abs=0.002)
    assert found.low < found.mean < found.high and found.high - found.low < 1.25 * (own[1] - own[0])
    assert found == after_selection(overs, 0.95)


def test_another_metric_of_the_chosen_attack_is_corrected_as_far_as_it_errs_with_the_first():
    random = np.random.default_rng(3)
    overs = [OverTargets(random.normal(0.5, 0.02, 9)) for _ in range(16)]
    best = max(overs, key=lambda over: over.mean)
    alike, unrelated = OverTargets(best.values / 2), OverTargets(np.tile([0.1, 0.2, 0.3], 3))
    assert after_selection(overs, 0.95, alike).mean < alike.mean
    ends = after_selection(overs, 0.95, unrelated)
    assert ends.low < unrelated.mean < ends.high
