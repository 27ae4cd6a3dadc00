"""The shadow classifier's scores of a target do not depend on the target's own membership."""

import warnings

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.signals.name import Reading, read_signal


def test_a_targets_own_membership_does_not_enter_its_scores():
    random = np.random.default_rng(0)
    member = random.random((100, 64)) < 0.5
    confidence, norm = random.normal(size=(2, *member.shape))
    readings = [Reading(read_signal("confidence"), [confidence]), Reading(read_signal("ixg_l1"), [np.exp(norm)])]
    other = member.copy()
    other[:, 7] = ~member[:, 7]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores, flipped = (
            attacks["shadow-classifier"].score(readings, labels, "none")[:, 7] for labels in (member, other)
        )
    np.testing.assert_allclose(scores, flipped, rtol=0, atol=1e-4 * np.abs(scores).max())
