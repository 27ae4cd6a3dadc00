"""Attacks with fewer other models: every target once, and each from as many others as asked for."""

import numpy as np
import pytest

from mia_audit.attacks.design import counts, groups, scored_with


def test_numbers_of_other_models_double_up_to_all_there_are():
    assert counts(33) == [4, 8, 16, 32] and counts(17) == [4, 8, 16] and counts(7) == [4, 6]
    assert counts(5) == counts(4) == []


@pytest.mark.parametrize(("models", "others"), [(17, 4), (17, 8), (10, 4), (9, 8)])
def test_every_model_is_a_target_once_among_different_models(models, others):
    drawn = list(groups(models, others, 0))
    assert sorted(np.concatenate([group[:targets] for group, targets in drawn]).tolist()) == list(range(models))
    assert all(len(set(group.tolist())) == others + 1 for group, _ in drawn)


def test_targets_get_the_scores_of_their_group():
    member = np.random.default_rng(0).random((20, 11)) < 0.5
    asked = []

    def score(models, here):
        np.testing.assert_array_equal(here, member[:, models])
        asked.append(models)
        return np.broadcast_to(models.astype(np.float32), here.shape)

    np.testing.assert_array_equal(scored_with(score, member, 4, 0), np.broadcast_to(np.arange(11), member.shape))
    assert len(asked) == 3
