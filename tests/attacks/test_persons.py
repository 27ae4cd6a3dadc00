"""From scores of records to scores of persons."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.attacks.catalogue import permuted_membership
from mia_audit.attacks.design import AGGREGATES, of_persons
from mia_audit.errors import UserError
from mia_audit.pools.persons import Persons

ids = st.lists(st.integers(0, 7), min_size=1, max_size=40)


@given(ids=ids, seed=st.integers(0, 99), aggregate=st.sampled_from(list(AGGREGATES)), share=st.sampled_from([0.0, 0.4]))
@settings(deadline=None, max_examples=60)
def test_the_order_of_rows_changes_no_bit(ids: list[int], seed: int, aggregate: str, share: float) -> None:
    random = np.random.default_rng(seed)
    scores = random.standard_normal((len(ids), 3)) * 10.0 ** random.integers(-8, 8, (len(ids), 3))
    scores[random.random(scores.shape) < share] = np.nan
    order = random.permutation(len(ids))
    here, there = Persons.numbered(np.array(ids)), Persons.numbered(np.array(ids)[order])
    one, other = of_persons(scores, here, aggregate), of_persons(scores[order], there, aggregate)
    assert np.array_equal(one[np.argsort(here.ids)], other[np.argsort(there.ids)], equal_nan=True)


def test_sums_means_and_maxima_leave_out_what_has_no_score() -> None:
    persons = Persons.numbered(np.array(["b", "a", "b", "c", "b"]))
    scores = np.array([[1.0], [5.0], [np.nan], [np.nan], [-4.0]])
    found = {name: of_persons(scores, persons, name)[:, 0] for name in AGGREGATES}
    assert persons.ids.tolist() == ["b", "a", "c"]
    assert found["sum"][:2].tolist() == [-3, 5]
    assert found["mean"][:2].tolist() == [-1.5, 5]
    assert found["max"][:2].tolist() == [1, 5]
    assert all(np.isnan(values[2]) for values in found.values())


@pytest.mark.parametrize("aggregate", list(AGGREGATES))
def test_with_one_record_a_person_scores_are_the_records(aggregate: str) -> None:
    scores = np.random.default_rng(0).standard_normal((30, 4))
    scores[3, 1] = np.nan
    persons = Persons.numbered(np.random.default_rng(1).permutation(30))
    assert np.array_equal(of_persons(scores, persons, aggregate), scores, equal_nan=True)


@given(ids=ids, seed=st.integers(0, 9))
@settings(deadline=None, max_examples=30)
def test_the_null_control_permutes_persons(ids: list[int], seed: int) -> None:
    persons = Persons.numbered(np.array(ids))
    drawn = np.random.default_rng(seed).random((len(persons), 6)) < 0.5
    null = permuted_membership(persons.spread(drawn), seed, "d", persons)
    of_null = persons.gathered(null, "null")
    assert (of_null.sum(axis=0) == drawn.sum(axis=0)).all()
    single = Persons.numbered(np.arange(len(persons)))
    assert np.array_equal(of_null, permuted_membership(drawn, seed, "d", single))
    assert np.array_equal(of_null, permuted_membership(drawn, seed, "d"))


def test_a_membership_that_splits_a_person_is_refused() -> None:
    persons = Persons.numbered(np.array([4, 4, 9]))
    with pytest.raises(UserError, match="some records of person 4 are members"):
        persons.gathered(np.array([[True], [False], [True]]), "membership")
