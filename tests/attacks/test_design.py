"""Designs in which the other models' members give the target's away: recognised, and corrected in every attack that learns."""

import numpy as np
import pytest
from scipy import stats

from mia_audit.attacks import attacks
from mia_audit.attacks.catalogue import permuted_membership
from mia_audit.attacks.design import NO_MODEL, left_out, recognise
from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.metrics import auc
from mia_audit.signals.name import Reading, read_signal

from ..builders import halves

RECORDS, MODELS, DRAWS = 200, 8, 40

SLOWER = {"blend": 4, "types": 2}
"""By how much fewer draws there are of likelihoods that take longer."""


def balanced(random, records=RECORDS, models=MODELS, inside=None):
    return random.random((records, models)).argsort(axis=1) < (models // 2 if inside is None else inside)


def pairs(random, records=RECORDS, models=MODELS):
    first = halves(random, records, models // 2)
    return np.stack([first, ~first], axis=2).reshape(records, models)


DESIGNS = {"balanced": balanced, "pairs": pairs}


@pytest.mark.parametrize("models", [4, 5, 8, 33])
def test_independent_memberships_are_left_alone(models):
    random = np.random.default_rng(0)
    for member in (
        halves(random, RECORDS, models),
        random.random((RECORDS, models)) < 0.5,
        random.random((60, models)) < 0.9,
    ):
        assert recognise(member).independent and left_out(member) is None
        assert recognise(member).metadata == {}


@pytest.mark.parametrize("models", [4, 8, 16, 64])
@pytest.mark.parametrize("kind", DESIGNS)
def test_a_design_is_recognised_also_without_one_of_its_models(kind, models):
    member = DESIGNS[kind](np.random.default_rng(0), models=models)
    assert recognise(member).kind == kind
    assert recognise(member).metadata == {"design_correction": kind}
    assert recognise(member[:, 1:]).kind == kind
    assert recognise(permuted_membership(member, 0, "pool")).kind == kind


@pytest.mark.parametrize("inside", [2, 4, 5])
def test_what_is_left_out_has_the_opposite_membership_and_equalises_counts(inside):
    member = balanced(np.random.default_rng(0), inside=inside)
    partners = left_out(member)
    assert (np.take_along_axis(member, partners, axis=1) != member).all()
    others = member.sum(axis=1, keepdims=True) - member - np.take_along_axis(member, partners, axis=1)
    assert (others == inside - 1).all()
    assert len(np.unique(partners[:, 0])) == MODELS - 1
    np.testing.assert_array_equal(partners, left_out(member))


def test_counts_carry_no_information_either_if_a_model_is_missing():
    """The missing model's membership follows from the counts; where it is drawn, no further model is left out."""
    member = balanced(np.random.default_rng(0), records=20_000)[:, 1:]
    partners = left_out(member)
    further = np.take_along_axis(member, np.maximum(partners, 0), axis=1) & (partners != NO_MODEL)
    others = member.sum(axis=1, keepdims=True) - member - further
    outside = MODELS - 2 - others - (partners != NO_MODEL)
    for inside, out in {*zip(others[:, 0].tolist(), outside[:, 0].tolist(), strict=True)}:
        mine = member[:, 0][(others[:, 0] == inside) & (outside[:, 0] == out)]
        assert abs(mine.mean() - 0.5) < 4 * 0.5 / len(mine) ** 0.5


@pytest.mark.parametrize("likelihood", ["per-record", "shrunk"])
def test_noise_is_guessing_if_a_model_is_missing(likelihood):
    """With counts left informative, the AUC was .52 and .51."""
    random = np.random.default_rng(1)
    member = balanced(random, records=20_000)[:, 1:]
    scores = likelihood_ratio(random.normal(size=member.shape), member, likelihood)
    aucs = [auc(score, here) for score, here in zip(scores.T, member.T, strict=True)]
    assert abs(np.mean(aucs) - 0.5) < 0.005


def test_the_partner_is_left_out_of_pairs_and_nothing_where_it_is_missing():
    member = pairs(np.random.default_rng(0))
    assert (left_out(member)[0] == [1, 0, 3, 2, 5, 4, 7, 6]).all()
    assert (left_out(member[:, 1:])[0] == [NO_MODEL, 2, 1, 4, 3, 6, 5]).all()


def test_few_records_may_look_balanced_by_chance():
    assert recognise(balanced(np.random.default_rng(0), records=6)).independent


@pytest.mark.parametrize("kind", DESIGNS)
def test_the_null_control_has_the_same_design_and_knows_nothing(kind):
    member = DESIGNS[kind](np.random.default_rng(0), records=2000)
    null = permuted_membership(member, 3, "pool")
    assert recognise(null) == recognise(member)
    np.testing.assert_array_equal(null.sum(axis=0), member.sum(axis=0))
    assert abs(np.corrcoef(null.ravel(), member.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("likelihood", ["pooled", "per-record", "shrunk"])
@pytest.mark.parametrize("kind", DESIGNS)
def test_scores_are_those_of_an_audit_without_the_two_models(kind, likelihood):
    """Record by record, where nothing is learned from other records: a fixed second model per target, as in pairs."""
    random = np.random.default_rng(1)
    member = DESIGNS[kind](random)
    signal = random.normal(size=member.shape) + member
    scores, partners = likelihood_ratio(signal, member, likelihood), left_out(member)
    if likelihood != "per-record":
        return_to = [squares_without(signal, member, partners, target) for target in range(MODELS)]
    for target in range(MODELS):
        for record in range(0, RECORDS, 17):
            kept = [s for s in range(MODELS) if s not in (target, partners[record, target])]
            x, here = signal[record, kept], member[record, kept]
            logs = []
            for place, side in enumerate((x[here], x[~here])):
                squares = ((side - side.mean()) ** 2).sum()
                if likelihood == "per-record":
                    logs.append(stats.norm(side.mean(), np.sqrt(squares / len(side))).logpdf(signal[record, target]))
                    continue
                pool = return_to[target][place]
                if likelihood == "pooled":
                    logs.append(stats.norm(side.mean(), np.sqrt(pool)).logpdf(signal[record, target]))
                    continue
                freedom = 20 + len(side) - 1
                scale = np.sqrt((20 * pool + squares) / freedom * (1 + 1 / len(side)))
                logs.append(stats.t(freedom, side.mean(), scale).logpdf(signal[record, target]))
            assert scores[record, target] == pytest.approx(logs[0] - logs[1], rel=1e-6, abs=1e-6)


def squares_without(signal, member, partners, target):
    """The pooled variances in and out, record by record without the target and its further model."""
    squares, freedom = np.zeros(2), np.zeros(2)
    for record in range(len(signal)):
        kept = [s for s in range(signal.shape[1]) if s not in (target, partners[record, target])]
        for place, side in enumerate(
            (signal[record, kept][member[record, kept]], signal[record, kept][~member[record, kept]])
        ):
            squares[place] += ((side - side.mean()) ** 2).sum()
            freedom[place] += len(side) - 1
    return squares / freedom


def test_the_hierarchical_ratio_of_pairs_is_the_one_without_the_partner():
    """Up to the models' places in the order of records, which a constant median and mean keep alike."""
    random = np.random.default_rng(2)
    member = pairs(random, records=400)
    signal = 3 * np.sort(random.normal(size=400))[:, None] + random.normal(size=member.shape) + member
    signal -= np.median(signal, axis=0)
    scores = RATIOS["hierarchical"](signal, member)
    for target in range(0, MODELS, 3):
        kept = [s for s in range(MODELS) if s != target ^ 1]
        alone = RATIOS["hierarchical"](signal[:, kept], member[:, kept])[:, kept.index(target)]
        # The bins' edges move a little with the partner's values, and D and T with them.
        assert np.corrcoef(scores[:, target], alone)[0, 1] > 0.998
        np.testing.assert_allclose(scores[:, target], alone, atol=0.6)


def reading(attack, random, member, leak=0.0):
    values = 2 * random.normal(size=(len(member), 1)) + random.normal(size=member.shape) + leak * member
    if attack in ("rmia", "rmia-offline", "base"):
        return [Reading(read_signal("loss"), [np.logaddexp(0, -values)])]
    other = Reading(read_signal("ixg_l1"), [np.exp(random.normal(size=member.shape))])
    return [Reading(read_signal("confidence"), [values]), *([other] if attack == "joint-lrt" else [])]


CASES = [
    *(("loss-lira", likelihood) for likelihood in RATIOS),
    ("joint-lrt", "hierarchical"),
    ("joint-lrt", "pooled"),
    ("loss-lira-offline", "pooled"),
    ("rmia", "none"),
    ("rmia-offline", "none"),
    ("shadow-classifier", "none"),
]


def mean_aucs(attack, likelihood, design, draws, leak=0.0, models=MODELS):
    found = []
    for seed in range(draws):
        random = np.random.default_rng([seed, 5])
        member = design(random, RECORDS, models)
        scores = attacks[attack].score(reading(attack, random, member, leak), member, likelihood)
        found.append(np.mean([auc(score, here) for score, here in zip(scores.T, member.T, strict=True)]))
    return np.array(found)


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize(("attack", "likelihood"), CASES)
def test_noise_is_guessing_under_every_design(attack, likelihood, kind):
    """Uncorrected, per-record and hierarchical have .43 and .47 at 8 models."""
    draws = DRAWS // SLOWER.get(likelihood, 1)
    found = mean_aucs(attack, likelihood, DESIGNS[kind], draws)
    assert abs(found.mean() - 0.5) < 4 * stats.sem(found) < 0.025 * (DRAWS / draws) ** 0.5


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize(("attack", "likelihood"), [case for case in CASES if case[1] != "per-record"])
def test_four_models_leave_one_on_either_side(attack, likelihood, kind):
    """No side has a variance then; scores are finite all the same, noise is guessing, and a leak is found."""
    draws = 20 // SLOWER.get(likelihood, 1)
    found = [mean_aucs(attack, likelihood, DESIGNS[kind], draws, leak, models=4) for leak in (0.0, 1.0)]
    assert abs(found[0].mean() - 0.5) < 4 * stats.sem(found[0])
    assert found[1].mean() > 0.55


@pytest.mark.parametrize("kind", DESIGNS)
@pytest.mark.parametrize(("attack", "likelihood"), [("loss-lira", name) for name in RATIOS])
def test_a_leak_is_that_of_random_halves_with_one_model_fewer(attack, likelihood, kind):
    draws = 15 // min(SLOWER.get(likelihood, 1), 2)
    corrected = mean_aucs(attack, likelihood, DESIGNS[kind], draws, leak=0.7)
    independent = mean_aucs(attack, likelihood, halves, draws, leak=0.7, models=MODELS - 1)
    assert abs(corrected.mean() - independent.mean()) < 0.015
