"""RMIA and the threshold attack against brute force: ranks, sizes and offsets of the signal."""

import numpy as np
import pytest

from mia_audit.attacks import attacks
from mia_audit.attacks.design import left_out
from mia_audit.attacks.methods.rmia import (
    SLOPE,
    log_mean_of_others,
    log_reference,
    share_dominated,
)
from mia_audit.evaluation.metrics import Ranking, auc
from mia_audit.signals.name import Reading, Signal, read_signal


def draw(seed=0, records=50, models=6):
    rng = np.random.default_rng(seed)
    member = rng.random((records, models)) < 0.5
    return -np.exp(rng.normal(size=(records, models)) - member), member


def test_the_mean_of_the_others_is_exact_where_subtraction_would_cancel():
    likelihood = np.array([[0.0, -50.0, -51.0], [-700.0, -1.0, -800.0]])
    expected = [
        [np.logaddexp(-50, -51), np.logaddexp(0, -51), np.logaddexp(0, -50)],
        [np.logaddexp(-1, -800), -700, -1],
    ]
    np.testing.assert_allclose(log_mean_of_others(likelihood), np.array(expected) - np.log(2), rtol=1e-12)


def test_a_target_that_is_far_likelier_than_the_others_is_compared_with_them_all_the_same():
    likelihood = np.array([[-1.0, -1200.0, -1300.0]])
    np.testing.assert_allclose(log_mean_of_others(likelihood)[0, 0], -1200 - np.log(2), rtol=1e-12)


def test_the_offline_reference_is_its_formula():
    likelihood, member = draw()
    reference = log_reference(likelihood, member)
    for t in range(member.shape[1]):
        for i in range(len(member)):
            out = np.exp(likelihood[i, (np.arange(member.shape[1]) != t) & ~member[i]])
            expected = np.log(((1 + SLOPE) * out.mean() + 1 - SLOPE) / 2) if len(out) else np.nan
            assert reference[i, t] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_agrees_with_brute_force(gamma):
    likelihood, member = draw()
    ratio = likelihood - log_mean_of_others(likelihood)
    ratio[3] = np.nan
    scores = share_dominated(ratio, member, gamma)
    for t in range(member.shape[1]):
        for x in range(len(member)):
            population = [z for z in range(len(member)) if z != 3 and not member[z, t]]
            gaps = np.array([ratio[x, t] - ratio[z, t] - np.log(gamma) for z in population])
            expected = np.mean((gaps > 0) + (gaps == 0) / 2) if x != 3 else np.nan
            assert scores[x, t] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("ties", [False, True])
def test_rmia_at_gamma_1_has_the_roc_curve_of_base(ties):
    for seed in range(5):
        likelihood, member = draw(seed)
        if ties:
            likelihood = np.round(likelihood, 0)
        reading = [Reading(read_signal("loss"), [-likelihood])]
        base, rmia = (attacks[name].score(reading, member, "none") for name in ("base", "rmia"))
        for t in range(member.shape[1]):
            assert ties == (len(np.unique(base[:, t])) < len(base))
            outside = int((~member[:, t]).sum())
            fprs = np.arange(outside + 1) / outside
            curves = [Ranking(scores[:, t], member[:, t]) for scores in (base, rmia)]
            np.testing.assert_array_equal(*(curve.true_positives(fprs) for curve in curves))
            assert curves[0].auc()[0] == curves[1].auc()[0]


def test_perfectly_separated_members_have_an_auc_of_1():
    """A non-member that tied with the members just above it would take some of it away."""
    member = np.random.default_rng(0).random((200, 6)) < 0.5
    ratio = np.where(member, 5.0, -5.0) + np.random.default_rng(1).random((200, 6))
    scores = share_dominated(ratio, member)
    assert [auc(scores[:, t], member[:, t]) for t in range(6)] == [1.0] * 6


def test_two_models_are_left_out_where_the_design_asks_for_it():
    random = np.random.default_rng(0)
    member = random.random((60, 6)).argsort(axis=1) < 3
    likelihood = -np.exp(3 * random.normal(size=(60, 6)))  # far apart, so that subtraction would cancel
    partners = left_out(member)
    for here in (None, ~member):
        means = log_mean_of_others(likelihood, here, partners)
        for i in range(60):
            for t in range(6):
                kept = [s for s in range(6) if s not in (t, partners[i, t]) and (here is None or here[i, s])]
                expected = np.logaddexp.reduce(likelihood[i, kept]) - np.log(len(kept))
                assert means[i, t] == pytest.approx(expected, rel=1e-9)


def test_base_with_all_models_in_the_mean_ranks_the_same():
    likelihood, _ = draw()
    every = likelihood - np.log(np.exp(likelihood).mean(axis=1, keepdims=True))
    others = likelihood - log_mean_of_others(likelihood)
    for t in range(likelihood.shape[1]):
        np.testing.assert_array_equal(np.argsort(every[:, t]), np.argsort(others[:, t]))


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
