"""The joint ratio against scipy's multivariate densities, and its limits."""

import numpy as np
import pytest
from scipy import stats

from mia_audit.attacks.engine.joint import JOINT_RATIOS, hierarchical_joint_ratio, joint_ratio
from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.metrics import auc


def draw(seed, records=60, models=9, correlation=0.5):
    rng = np.random.default_rng(seed)
    member = rng.random((records, models)) < 0.5
    noise = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], size=member.shape)
    return [rng.normal(size=(records, 1)) + noise[..., i] * (1 + i) + member * (i + 0.5) for i in range(2)], member


def test_agrees_with_a_loop_over_targets():
    signals, member = draw(0)
    x = np.stack(signals, axis=-1)
    scores = joint_ratio(signals, member)
    for t in range(member.shape[1]):
        others = np.arange(member.shape[1]) != t
        sides = [
            [row[others & (here == inside)] for row, here in zip(x, member, strict=True)] for inside in (True, False)
        ]
        pools = [
            sum((v - v.mean(0)).T @ (v - v.mean(0)) for v in side if len(v)) / sum(len(v) - 1 for v in side if len(v))
            for side in sides
        ]
        for i in range(len(x)):
            if not all(len(side[i]) for side in sides):
                assert np.isnan(scores[i, t])
                continue
            inside, outside = (
                stats.multivariate_normal.logpdf(x[i, t], side[i].mean(0), pool)
                for side, pool in zip(sides, pools, strict=True)
            )
            assert scores[i, t] == pytest.approx(inside - outside, rel=1e-8, abs=1e-8)


def test_one_signal_is_the_pooled_ratio():
    signals, member = draw(1)
    np.testing.assert_allclose(
        joint_ratio(signals[:1], member), likelihood_ratio(signals[0], member, "pooled"), atol=1e-9
    )


def test_a_signal_given_twice_is_no_error_and_ranks_as_one():
    signals, member = draw(2)
    gap = joint_ratio([signals[0], 2 * signals[0] + 1], member) - likelihood_ratio(signals[0], member, "pooled")
    for column in gap.T:  # the direction without any spread adds a constant per target
        np.testing.assert_allclose(column[~np.isnan(column)], np.nanmean(column), atol=1e-4)


def test_few_models_suffice_when_shifts_are_shrunk():
    signals, member = draw(4, records=3000, models=6)
    member[0] = True
    hierarchical, pooled = hierarchical_joint_ratio(signals, member), joint_ratio(signals, member)
    assert np.isfinite(hierarchical).all() and np.isnan(pooled[0]).all()
    gain = []
    for target in range(6):
        scored = ~np.isnan(pooled[:, target])
        here = member[scored, target]
        gain.append(auc(hierarchical[scored, target], here) - auc(pooled[scored, target], here))
    assert np.mean(gain) > 0.005


def test_the_hierarchical_ratio_is_a_student_t_around_the_shrunk_means():
    """With one signal and many models, the single hierarchical ratio differs only by its shrunk variances."""
    signals, member = draw(5, records=1500, models=33)
    joint, single = hierarchical_joint_ratio(signals[:1], member), RATIOS["hierarchical"](signals[0], member)
    assert np.corrcoef(joint.ravel(), single.ravel())[0, 1] > 0.95


@pytest.mark.parametrize("ratio", JOINT_RATIOS.values())
def test_two_signals_tell_more_than_either(ratio):
    signals, member = draw(3, records=3000, correlation=0.0)
    values = [
        auc(s[:, 0], member[:, 0]) for s in (*(likelihood_ratio(s, member) for s in signals), ratio(signals, member))
    ]
    assert values[2] > max(values[:2]) + 0.01


@pytest.mark.parametrize("kind", ["hierarchical", "pooled"])
def test_a_signal_without_variance_adds_its_evidence_and_no_rounding(kind):
    """Divided by a standard deviation that is all rounding, the first two made the score a coin, and the third infinite."""
    random = np.random.default_rng(3)
    member = random.random((400, 8)) < 0.5
    signal = 2 * random.normal(size=(400, 1)) + random.normal(size=member.shape) + member
    alone = mean_auc(JOINT_RATIOS[kind]([signal], member, None), member)
    of_record = np.broadcast_to(random.normal(size=(400, 1)), member.shape)
    for uninformative in (of_record, 1e8 + of_record, np.full(member.shape, 0.7)):
        together = JOINT_RATIOS[kind]([signal, uninformative], member, None)
        assert mean_auc(together, member) == pytest.approx(alone, abs=0.002)
    perfect = JOINT_RATIOS[kind]([signal, np.where(member, 0.0, 0.7)], member, None)
    assert not np.isinf(perfect).any() and mean_auc(perfect, member) > 0.999


def mean_auc(scores, member):
    known = ~np.isnan(scores).any(axis=1)
    return np.mean([auc(score, here) for score, here in zip(scores[known].T, member[known].T, strict=True)])
