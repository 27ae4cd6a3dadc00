"""Types of records: their score against its definition, what it may not read, and where the blend stands."""

import numpy as np
import pytest

from mia_audit.attacks.engine import type_ratio
from mia_audit.attacks.engine import types as engine
from mia_audit.attacks.engine.joint import JOINT_RATIOS
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.attacks.engine.type_ratio import TINY, Evidence, blend_weights, equalised, first_types
from mia_audit.attacks.engine.types import TEMPER, Grid, learn, score
from mia_audit.signals.name import Columns

from ...builders import mean_auc


def draw(seed, records=300, models=9, signals=1):
    """Draw records of two types: half are easy, with little noise and no leak, and half leak."""
    random = np.random.default_rng(seed)
    member = random.random((records, models)) < 0.5
    easy = np.arange(records)[:, None] % 2
    values = [
        3 * easy + random.normal(size=member.shape) * (1 - 0.9 * easy) + (1 - easy) * member for _ in range(signals)
    ]
    return values, member


@pytest.mark.parametrize("alike", [1, 10**9])
@pytest.mark.parametrize("signals", [1, 2])
def test_agrees_with_the_definition(signals, alike, monkeypatch):
    monkeypatch.setattr(engine, "ALIKE", alike)
    values, member = draw(0, records=60, signals=signals)
    columns = [Columns(one) for one in values]
    grid, side = Grid(columns), member.T.copy()
    types = learn(grid, grid.counts(side, range(3, 9)), first_types(columns[0], member, np.arange(3, 9)))
    left = np.where(np.arange(60)[:, None] % 3, -1, [[4, 5, 6]])
    found = score(types, grid, side, grid.counts(side, range(9)), np.arange(3), left)
    histogram = types.histogram.astype(float)

    def at(model, record, half, table):
        places = grid.place[model, record] + half * grid.size + grid.offsets
        return grid.weights(model, np.array([record]))[0] @ table[places]

    for target in range(3):
        for record in range(60):
            others = [s for s in range(9) if s not in (target, left[record, target])]
            log_gamma = np.log(types.share) + TEMPER * sum(
                at(s, record, member[record, s], np.log(histogram)) for s in others
            )
            gamma = np.exp(log_gamma - log_gamma.max())
            ratio = np.log(gamma @ at(target, record, 1, histogram) / (gamma @ at(target, record, 0, histogram)))
            assert found[record, target] == pytest.approx(ratio, abs=2e-3)


def test_histograms_are_distributions():
    values, member = draw(0, signals=2)
    columns = [Columns(one) for one in values]
    grid = Grid(columns)
    types = learn(grid, grid.counts(member.T, range(9)), first_types(columns[0], member, np.arange(9)))
    assert types.share.sum() == pytest.approx(1, abs=1e-5) and (types.histogram > 0).all()
    np.testing.assert_allclose(types.histogram.reshape(2, grid.size, -1).sum(axis=1), 1, atol=1e-4)


@pytest.mark.parametrize("likelihood", ["types", "blend"])
@pytest.mark.parametrize("signals", [1, 2])
def test_a_targets_membership_enters_none_of_its_scores(likelihood, signals):
    values, member = draw(1, signals=signals)
    ratio = JOINT_RATIOS[likelihood]
    before = ratio(values, member)
    for target in (0, 5):
        other = member.copy()
        other[:, target] = np.random.default_rng(target).random(len(member)) < 0.5
        after = ratio(values, other)
        np.testing.assert_allclose(after[:, target], before[:, target], atol=1e-3)
        assert np.abs(after[:, 1] - before[:, 1]).max() > 0.05


def test_types_tell_records_apart_that_one_variance_cannot():
    """A pooled variance gives the easy records of this pool too much weight, or the others too little."""
    values, member = draw(3, records=2000, models=6)
    found = {name: mean_auc(ratio(values[0], member), member) for name, ratio in RATIOS.items()}
    assert found["types"] > found["hierarchical"] + 0.01
    assert found["blend"] > found["types"] - 0.005


def test_the_blend_keeps_the_hierarchical_ratio_where_its_model_holds():
    random = np.random.default_rng(4)
    member = random.random((120, 13)) < 0.5
    values = random.normal(size=(120, 1)) * 3 + random.normal(size=member.shape) + 1.2 * member
    found = {name: mean_auc(RATIOS[name](values, member), member) for name in ("types", "hierarchical", "blend")}
    assert found["hierarchical"] > found["types"] + 0.01
    assert found["blend"] > found["hierarchical"] - 0.01


@pytest.mark.parametrize("design", ["drawn", "balanced"])
@pytest.mark.parametrize("likelihood", ["types", "blend"])
def test_types_learned_from_some_records_serve_all(likelihood, design, monkeypatch):
    """Records of two kinds alternate, so that evenly spaced ones would be of one kind."""
    values, member = draw(4, records=3000)
    if design == "balanced":
        ranks = np.random.default_rng(0).permuted(np.tile(np.arange(9), (3000, 1)), axis=1)
        values[0] += (1 - np.arange(3000)[:, None] % 2) * ((ranks < 4) * 1.0 - member)
        member = ranks < 4
    whole = JOINT_RATIOS[likelihood](values, member)
    monkeypatch.setattr(type_ratio, "LEARNED", 1500)
    some = JOINT_RATIOS[likelihood](values, member)
    assert np.isfinite(some).all() and not np.array_equal(some, whole)
    assert mean_auc(some, member) == pytest.approx(mean_auc(whole, member), abs=4e-3)
    assert np.corrcoef(some.ravel(), whole.ravel())[0, 1] > 0.97
    monkeypatch.setattr(type_ratio, "LEARNED", 3000)
    monkeypatch.setattr(engine, "PART", 700)
    np.testing.assert_allclose(JOINT_RATIOS[likelihood](values, member), whole, atol=2e-4)


def test_weights_are_never_negative_and_equal_where_nothing_predicts():
    random = np.random.default_rng(0)
    labels = random.random(4000) < 0.5
    informative = labels + random.normal(size=4000)
    weights = blend_weights(np.stack([informative, -informative + random.normal(size=4000)], axis=1), labels)
    assert weights[0] > 0.5 and weights[1] >= 0
    np.testing.assert_array_equal(blend_weights(-informative[:, None], labels), [1])
    np.testing.assert_array_equal(blend_weights(np.full((9, 2), np.nan), labels[:9]), [1, 1])


def test_what_is_counted_of_a_balanced_design_says_nothing_of_the_fold():
    random = np.random.default_rng(0)
    member = random.random((500, 12)).argsort(axis=1) < 6
    counted = equalised(member, np.array([1, 5, 9]))
    assert not counted[:, [1, 5, 9]].any()
    assert ((member & counted).sum(axis=1) == 3).all() and ((~member & counted).sum(axis=1) == 3).all()


def test_complementary_models_are_in_one_fold():
    half = np.random.default_rng(0).random((300, 5)) < 0.5
    member = np.stack([half, ~half], axis=2).reshape(300, 10)
    folds = Evidence([np.random.default_rng(1).normal(size=member.shape)], member).folds
    assert sorted(model for fold in folds for model in fold.tolist()) == list(range(10))
    assert all(model ^ 1 in fold for fold in folds for model in fold)


@pytest.mark.parametrize("ratios", [RATIOS, None])
def test_tiny_pools_are_scored_without_types(ratios):
    (signal,), member = draw(3, records=TINY + 1, models=5)
    for records, alike in ((TINY, True), (TINY + 1, False)):
        values, here = np.asfortranarray(signal[:records]), np.asfortranarray(member[:records])
        blend, hierarchical = (
            RATIOS[name](values, here) if ratios else JOINT_RATIOS[name]([values, values**2], here)
            for name in ("blend", "hierarchical")
        )
        assert np.allclose(blend, hierarchical, atol=1e-6) == alike
