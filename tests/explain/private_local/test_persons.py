"""Private explanations of sets in which persons have several records: a person contributes one bounded vector."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mia_audit.errors import UserError
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.privacy import ledger

TERMS = ExplanationTerms(epsilon=1.0, delta=1e-6, budget=50.0, steps=5)


def explained(persons, records=12, features=3):
    random = np.random.default_rng(0)
    values = np.tanh(random.normal(size=(records, 1)))
    return ExplanationSet.from_arrays(random.normal(size=(records, features)), values, 1.0, persons)


def answers(explanation_set, ledger=None):
    service = PrivateExplainer(explanation_set, TERMS, "adaptive", seed=1, ledger=ledger)
    return service.answer(np.eye(3)[:2], np.full((2, 1), 0.25)), service


def test_with_one_record_each_they_are_those_of_records():
    alone, service = answers(explained(np.arange(12) + 100))
    records, _ = answers(explained(None))
    np.testing.assert_array_equal(alone.explanations, records.explanations)
    assert service.explained.unit == "person", "whether anybody has two records is not published"
    assert service.explained.units == 12


def test_a_data_ledger_of_persons_takes_persons_with_one_record_each(tmp_path):
    budget = ledger.LedgerTerms("table", "person", 100.0, TERMS.delta, filter="gdp")
    ledger.charge(tmp_path / "table.ledger", budget, [])
    ledgers = {"ledger": tmp_path / "ledger", "data_ledger": tmp_path / "table.ledger"}
    PrivateExplainer(explained(np.arange(12)), TERMS, **ledgers).ledger.close()
    assert len(ledger.read_ledger(tmp_path / "table.ledger")[1]) == 1


def test_noise_and_ledger_are_of_persons(tmp_path):
    persons = np.repeat(np.arange(4), 3)
    _, service = answers(explained(persons), tmp_path / "ledger")
    _, of_records = answers(explained(None))
    assert service.deviation == pytest.approx(3 * of_records.deviation)  # 4 persons in place of 12 records
    service.ledger.close()
    with pytest.raises(UserError, match="unit"):
        answers(explained(None), tmp_path / "ledger")


def test_ids_are_of_as_many_records():
    with pytest.raises(UserError, match="12 records and 3 ids"):
        explained(np.arange(3))


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    phi=arrays(np.float64, 3, elements=st.floats(-1, 1)),
    seed=st.integers(0, 2**16),
)
def test_a_person_moves_the_gradient_by_no_more_than_one_record(counts, scale, phi, seed):
    """Zero-out adjacency: without the first person's terms, any number of any size, ∇L moves by at most c/P."""
    random = np.random.default_rng(seed)
    persons = np.repeat(np.arange(len(counts) + 1), [*counts, 2])
    records = scale * random.normal(size=(len(persons), 3))
    values = random.choice([-1.0, 1.0], size=(len(persons), 1))
    phi = phi / max(1.0, np.linalg.norm(phi))
    gone = np.where((persons == 0)[:, None], np.nan, records)
    query, at_query, kind = np.zeros((1, 3)), np.array([-1.0]), np.zeros(1, dtype=int)
    with_them, without = (
        next(
            iter(ExplanationSet.from_arrays(rows, values, 1.0, persons).problems(query, at_query, kind, TERMS))
        ).gradient(phi)
        for rows in (records, gone)
    )
    assert np.linalg.norm(with_them - without) <= TERMS.c / (len(counts) + 1) * (1 + 1e-9)


def test_the_order_of_rows_changes_nothing():
    persons = np.array([0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4])
    whole = explained(persons)
    order = np.random.default_rng(1).permutation(12)
    turned = ExplanationSet.from_arrays(whole.records[order], whole.values[order], 1.0, persons[order])
    query = (np.zeros((1, 3)), np.zeros(1), np.zeros(1, dtype=int), TERMS)
    first, second = (next(iter(one.problems(*query))) for one in (whole, turned))
    np.testing.assert_allclose(first.gram, second.gram, rtol=1e-12)
    np.testing.assert_allclose(first.moment, second.moment, rtol=1e-12)
    assert first.records == second.records == 5


def test_some_of_the_records_keep_their_persons():
    persons = np.array([0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 4])
    part = explained(persons).among(persons < 3)
    assert (part.units, part.unit) == (3, "person")
    np.testing.assert_allclose(part.shares, [1 / 3] * 3 + [1] + [1 / 2] * 2)
