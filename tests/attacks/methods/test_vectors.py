"""Attacks on vectors, and attacks that learn: ratios of direction and norm, classifiers, on all models or on some."""

import warnings

import numpy as np
import pytest

from mia_audit.attacks.catalogue import AttackRun, attacks, plan, scores_of
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.engine.vectors import hierarchical_vector_ratio
from mia_audit.signals.name import Reading, read_signal

from ...builders import mean_auc
from ..engine.test_vectors import membership

SIGNALS = [read_signal(name) for name in ("loss", "ixg_l1", "ixg_vector")]


def drawn():
    random = np.random.default_rng(0)
    member = random.random((300, 6)) < 0.5
    directions = (random.standard_normal((300, 6, 3)) + member[:, :, None]).astype(np.float16)
    return member, {SIGNALS[1]: [random.exponential(size=(300, 6))], SIGNALS[2]: [directions]}


def test_it_alone_reads_vectors():
    runs = plan(["threshold", "vector-lrt", "shadow-classifier"], SIGNALS, ["blend", "hierarchical"])
    assert {run.signal for run in runs if run.attack == "vector-lrt"} == {"ixg_vector+ixg_l1"}
    assert not any(one.is_vector for run in runs if run.attack != "vector-lrt" for one in run.signals)
    (signal,) = {run.signals for run in runs if run.attack == "vector-lrt"}
    assert read_signal("ixg_vector+ixg_l1").label == "whole map of input × gradient"
    assert read_signal("ixg_vector+ixg_l1").channel == "explanations" and len(signal) == 2


def test_scores_are_the_sum_of_both_ratios():
    member, values = drawn()
    run = AttackRun("vector-lrt", (SIGNALS[2], SIGNALS[1]), "hierarchical", null_control=False)
    (scored,) = scores_of([run], values.__getitem__, member, member)
    norm = RATIOS["hierarchical"](np.log(values[SIGNALS[1]][0]), member)
    np.testing.assert_allclose(scored.scores, norm + hierarchical_vector_ratio(values[SIGNALS[2]][0], member))


def test_a_blend_is_hardly_worse_than_the_better_of_norm_and_direction_and_guesses_by_chance_without_a_leak():
    random = np.random.default_rng(1)
    member = random.random((800, 8)) < 0.5
    leaking, chance = random.standard_normal((2, 800, 8, 4))
    leaking += 0.6 * member[:, :, None]
    for norm, vectors, least in ((leaking, chance, 0.62), (chance, leaking, 0.75), (chance, chance[:, :, 1:], 0.47)):
        values = {SIGNALS[1]: [np.exp(norm[:, :, 0])], SIGNALS[2]: [vectors.astype(np.float16)]}
        runs = [AttackRun("vector-lrt", (SIGNALS[2], SIGNALS[1]), "blend", null_control=False)]
        (scored,) = scores_of(runs, values.__getitem__, member, member)
        auc = mean_auc(scored.scores, member)
        assert auc > least and (least > 0.5 or auc < 0.53)


def test_some_models_are_scored_as_if_there_were_no_others():
    member, values = drawn()
    some, score = np.array([4, 0, 2, 5]), attacks["vector-lrt"].score
    inside = np.asfortranarray(member[:, some])
    ours = score([Reading(one, values[one], some) for one in values], inside, "blend")
    theirs = score([Reading(one, [values[one][0][:, some]]) for one in values], inside, "blend")
    np.testing.assert_allclose(ours, theirs)


def simulated(design, models, records, leak, seed=0):
    """A vector and a norm per record and model, and the membership; members' directions turn by `leak`."""
    random = np.random.default_rng(seed)
    member = membership(design, records, models, random)
    own, noise = random.standard_normal((records, 1, 4)), random.standard_normal((records, models, 4))
    vectors = (2 * own + noise + leak * np.abs(own) * member[:, :, None]).astype(np.float16)
    return member, [Reading(SIGNALS[2], [vectors]), Reading(SIGNALS[1], [np.exp(noise[:, :, 0])])]


@pytest.mark.parametrize(
    ("design", "models"),
    [("independent", 4), ("independent", 17), ("balanced", 4), ("balanced", 8), ("pairs", 4), ("pairs", 8)],
)
def test_the_classifier_finds_a_leak_and_guesses_by_chance_without_one(design, models):
    score, records = attacks["vector-classifier"].score, 800
    member, readings = simulated(design, models, records, leak=0)
    assert abs(mean_auc(score(readings, member, "none"), member) - 0.5) < 4 * 0.3 / np.sqrt(records * models)
    member, readings = simulated(design, models, records, leak=1)
    assert mean_auc(score(readings, member, "none"), member) > 0.57


def test_a_targets_membership_enters_none_of_the_classifiers_scores():
    member, readings = simulated("independent", 6, 400, leak=1)
    other = member.copy()
    other[:, 3] = ~other[:, 3]
    ours, theirs = (attacks["vector-classifier"].score(readings, one, "none")[:, 3] for one in (member, other))
    np.testing.assert_array_equal(ours, theirs)


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
