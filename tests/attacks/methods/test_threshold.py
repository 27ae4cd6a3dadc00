"""The threshold attack ranks records as their signal does, at any size and offset of it."""

import numpy as np
import pytest

from mia_audit.attacks import attacks
from mia_audit.evaluation import auc
from mia_audit.signals.name import Reading, Signal

SIGNAL = np.exp(np.random.default_rng(0).normal(size=(300, 4)))
MEMBER = np.random.default_rng(1).random((300, 4)) < 0.5


def score(values, members):
    return attacks["threshold"].score([Reading(Signal("gap", "real", members), [values])], MEMBER, "none")


@pytest.mark.parametrize("members", ["low", "high"])
def test_scores_are_the_signal_with_the_sign_of_members(members):
    expected = (SIGNAL if members == "high" else -SIGNAL).astype(np.float32)
    np.testing.assert_array_equal(score(SIGNAL, members), expected)


@pytest.mark.parametrize("members", ["low", "high"])
@pytest.mark.parametrize(("scale", "offset"), [(1e-50, 0), (1e60, 0), (1, 1e4), (1, -1e9), (0, 5)])
def test_stored_scores_have_the_ties_and_the_order_of_the_signal(members, scale, offset):
    values = SIGNAL * scale + offset
    stored = score(values, members).astype(np.float32)
    for column, signal, here in zip(stored.T, values.T, MEMBER.T, strict=True):
        expected = auc(signal if members == "high" else -signal, here)
        assert auc(column, here) == pytest.approx(expected, abs=1e-12)
