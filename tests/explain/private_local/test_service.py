import contextlib
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.errors import UserError
from mia_audit.explain.private_local.history import AnsweredQuery
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PROTOCOLS, ExplanationLedger, PrivateExplainer
from mia_audit.explain.private_local.solver import minimum
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.privacy import ledger
from mia_audit.privacy.accounting import charge_of
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.storage import write_json

from ...killing import Killed, killed


def explainer(table, terms, protocol="non-adaptive", **options):
    return PrivateExplainer(table.explained, terms, protocol, table.black_box, **{"seed": 1} | options)


def test_noise_has_the_scale_that_the_budget_asks_for(clustered, terms, monkeypatch):
    """One step over records that say nothing (f = 0): what is released is −rate times the noise."""
    table = clustered(4000, 6)
    monkeypatch.setattr(type(table), "black_box", lambda self, records: np.zeros((len(records), 1)))
    one = replace(terms, steps=1, budget=1000.0)
    service = explainer(table, one)
    released = service.answer(table.records[:400]).explanations
    assert np.linalg.norm(released, axis=1).max() < 1, "clipped: the noise cannot be seen"
    expected = service._rate * one.multiplier * one.c / 4000
    assert released.std() == pytest.approx(expected, rel=0.05)
    twice = explainer(table, replace(one, adjacency="replacement"))
    assert twice.deviation == pytest.approx(2 * service.deviation)


def test_explanations_are_rounded_to_single_precision(table, terms):
    """All 53 bits of a sum with float64 noise may tell which values the gradient had (Mironov 2012)."""
    explanations = explainer(table, terms, seed=None).answer(table.records[:3]).explanations
    np.testing.assert_array_equal(explanations, explanations.astype(np.float32))
    assert np.unique(explanations).size > 3


def test_a_query_from_scratch_costs_its_epsilon(table, terms):
    service = explainer(table, terms)
    answers = service.answer(table.records[:3])
    assert answers.source == ["scratch"] * 3
    assert answers.spent == [pytest.approx(terms.steps / terms.multiplier**2)] * 3
    assert service.epsilon == pytest.approx(epsilon_of_gdp(math.sqrt(sum(answers.spent)), terms.delta))


def test_with_a_large_budget_explanations_are_the_minima(clustered):
    table = clustered(2000, 4)
    terms = ExplanationTerms(epsilon=50.0, delta=1e-6, budget=1e6, steps=400)
    released = explainer(table, terms).answer(table.records[:5]).explanations
    explained = table.explained
    problems = explained.problems(explained.points(table.records[:5]), explained.values[:5, 0], np.zeros(5, int), terms)
    for phi, problem in zip(released, problems, strict=True):
        assert problem.loss(phi) - problem.loss(minimum(problem)) < 2e-3


@pytest.mark.parametrize("protocol", ["non-adaptive", "adaptive", "enhanced"])
def test_one_by_one_or_at_once_the_answers_are_the_same(table, terms, protocol):
    queries = table.records[::15]
    whole = explainer(table, terms, protocol)
    together = whole.answer(queries)
    single = explainer(table, terms, protocol)
    apart = [single.answer(queries[i : i + 1]) for i in range(len(queries))]
    assert together.source == [one.source[0] for one in apart]
    assert together.spent == [one.spent[0] for one in apart]
    np.testing.assert_allclose(together.explanations, np.concatenate([one.explanations for one in apart]), atol=1e-9)
    assert whole.epsilon <= terms.budget


def test_neighbours_are_answered_for_free_from_computed_ones_only(clustered, terms):
    line = np.zeros((300, 2), dtype=np.float32)
    line[:, 0] = np.linspace(0, 3, 300)
    table = type(clustered(1, 2))(line)
    service = PrivateExplainer(table.explained, replace(terms, budget=50.0), "adaptive", table.black_box, seed=0)
    answers = service.answer(line)
    near = service._near
    points = service.explained.points(line)
    computed: list[int] = []
    for index, source in enumerate(answers.source):
        distances = np.linalg.norm(points[computed] - points[index], axis=1)
        if source == "reused":
            assert distances.min() <= near
            nearest = computed[int(distances.argmin())]
            np.testing.assert_array_equal(answers.explanations[index], answers.explanations[nearest])
            assert answers.spent[index] == 0
        else:
            assert not (distances <= near).any()
            computed.append(index)
    assert len(computed) > 1


def test_enhanced_takes_no_more_steps_than_adaptive(clustered):
    """Where the noise's own norm is the larger, the floor makes steps that buy nothing."""
    table = clustered(600, 6, clusters=12, spread=0.8)
    terms = ExplanationTerms(epsilon=0.3, delta=1e-6, budget=100.0, steps=60)
    steps = {name: explainer(table, terms, name).answer(table.records[:60]).steps for name in ("adaptive", "enhanced")}
    assert sum(steps["enhanced"]) <= sum(steps["adaptive"])
    assert max(steps["adaptive"]) <= terms.steps


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - {"non-interactive"}))
def test_when_the_budget_is_spent_the_history_answers(table, terms, protocol):
    small = replace(terms, budget=0.8)
    answers = explainer(table, small, protocol).answer(table.records[::6])
    free = [source == "history" for source in answers.source]
    assert any(free)
    assert all(cost == 0 for cost, is_free in zip(answers.spent, free, strict=True) if is_free)
    assert epsilon_of_gdp(math.sqrt(sum(answers.spent)), terms.delta) <= 0.8
    assert (np.linalg.norm(answers.explanations, axis=1) <= 1 + 1e-9).all()


def test_the_history_never_reads_the_records(table, terms):
    service = explainer(table, terms)
    service.answer(table.records[:4])
    answers = []
    for records in (table.records, np.zeros_like(table.records)):
        reader = explainer(type(table)(records), terms, "non-interactive")
        reader.ledger.append(service.ledger.entries)
        values = table.black_box(table.records[20:24])
        answers.append(reader.answer(table.records[20:24], values).explanations)
    np.testing.assert_array_equal(*answers)


def test_a_history_that_agrees_is_followed(table, terms):
    """Past explanations that all say the same, of the same class, are what the history says."""
    service = explainer(table, terms, "non-interactive")
    phi = np.array([0.3, -0.2, 0.1, 0.4])
    points = service.explained.points(table.records[:3])
    service.ledger.append([AnsweredQuery(point, 0.0, 0, "scratch", 1, 0.0, phi) for point in points])
    np.testing.assert_allclose(service.answer(table.records[9:10]).explanations[0], phi, atol=1e-6)


TABLE_QUERIES = st.lists(st.lists(st.integers(0, 599), min_size=1, max_size=6), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(batches=TABLE_QUERIES, protocol=st.sampled_from(sorted(PROTOCOLS)), budget=st.sampled_from([0.05, 0.6, 1.5]))
def test_no_order_of_queries_overspends(table, batches, protocol, budget):
    terms = ExplanationTerms(epsilon=0.5, delta=1e-6, budget=budget, steps=9)
    service = explainer(table, terms, protocol)
    released = 0.0
    for batch in batches:
        before = (service.ledger.mu_squared, len(service.ledger.entries))
        try:
            answers = service.answer(table.records[batch])
        except UserError as error:
            assert "nothing was spent on this query" in str(error)
            charged = service.ledger.entries[before[1] :]
            assert service.ledger.mu_squared == pytest.approx(before[0] + sum(entry.mu_squared for entry in charged))
            released += sum(entry.mu_squared for entry in charged)
            continue
        released += sum(answers.spent)
    assert service.ledger.mu_squared == pytest.approx(released)
    assert service.ledger.mu_squared <= terms.mu_squared * (1 + 1e-12)
    assert service.epsilon <= budget * (1 + 1e-9)


@pytest.mark.parametrize("protocol", ["non-adaptive", "enhanced"])
def test_concurrent_callers_share_one_budget(table, terms, protocol, tmp_path):
    service = explainer(table, replace(terms, budget=1.2), protocol, ledger=tmp_path / "ledger.arrow")
    spent: list[float] = []
    barrier = threading.Barrier(6)

    def ask(first: int) -> None:
        barrier.wait()
        for index in range(first, 60, 6):
            spent.extend(service.answer(table.records[9 * index : 9 * index + 2]).spent)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spent) == 120
    assert sum(spent) == pytest.approx(service.ledger.mu_squared)
    assert service.ledger.mu_squared <= service.terms.mu_squared
    numbers = [entry.number for entry in service.ledger.entries]
    assert len(numbers) == len(set(numbers)) == sum(cost > 0 for cost in spent)
    service.ledger.close()


def bad(name, table, service):
    cases = {
        "columns": lambda: service.answer(np.zeros((2, 5))),
        "finite": lambda: service.answer(np.full((1, 4), np.nan)),
        "huge": lambda: service.answer(np.array([[0, 1e155, 0, 0]])),
        "values": lambda: service.answer(table.records[:1], np.array([1.2])),
        "count": lambda: service.answer(table.records[:2], np.zeros(1)),
        "classes": lambda: service.answer(table.records[:2], np.zeros((2, 3))),
    }
    return cases[name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("columns", r"queries of shape \[5\]; expected the shape .* \[4\]; nothing was spent"),
        ("finite", "query 0 has a feature that is not finite, or not between .*; nothing was spent"),
        ("huge", "query 0 has a feature that is not finite, or not between .*; nothing was spent"),
        ("values", r"the black box at the queries: a value of \[1.2\] at record 0 is outside"),
        ("count", "for 2 records"),
        ("classes", "3 values each; expected 1, as in the explanation set; nothing was spent"),
    ],
)
def test_bad_queries_cost_nothing(table, terms, name, words):
    service = explainer(table, terms)
    with pytest.raises(UserError, match=words) as caught:
        bad(name, table, service)()
    assert "\n" not in str(caught.value)
    assert service.ledger.mu_squared == 0
    assert service.ledger.entries == []


def test_no_queries_are_no_answers(table, terms):
    service = explainer(table, terms)
    assert service.answer(table.records[:0]).explanations.shape == (0, 4)
    assert service.ledger.entries == []


def test_a_column_of_labels_needs_them_at_the_queries(table, terms):
    service = PrivateExplainer(table.explained, terms, "non-adaptive", seed=0)
    with pytest.raises(UserError, match="Pass the values at the queries; nothing was spent"):
        service.answer(table.records[:1])
    service.answer(table.records[:1], table.black_box(table.records[:1]))
    uncentred = PrivateExplainer(table.explained, replace(terms, as_published=("uncentred",)), "non-adaptive", seed=0)
    assert uncentred.answer(table.records[:1]).source == ["scratch"]


def test_an_exhausted_budget_without_a_history_is_named(table, terms):
    service = explainer(table, replace(terms, budget=0.01))
    with pytest.raises(
        UserError, match=r"the budget \(ε = 0.01 at δ = 1e-06\) is too small to answer .* nothing was spent"
    ):
        service.answer(table.records[:2])
    assert service.ledger.mu_squared == 0


def test_a_call_that_is_refused_half_way_charges_what_it_computed(table, terms):
    """What the first query costs is told by noisy numbers, and whether the second is refused tells that cost: retried for
    free until a call goes through, such refusals would count what a budget is to limit."""
    values = np.linspace(-1, 1, len(table.records))[:, None] * [1, -1]
    explained = ExplanationSet.from_arrays(table.records, values, table.explained.scale)
    service = PrivateExplainer(explained, replace(terms, budget=0.6), "enhanced", seed=1)
    one, other = np.array([[0.5, -0.5]]), np.array([[-0.5, 0.5]])
    service.answer(table.records[:1], one)
    spent = service.ledger.mu_squared
    with pytest.raises(UserError, match="earlier queries of the same call stay charged"):
        service.answer(table.records[[300, 0]], np.concatenate([one, other]))
    assert [entry.source for entry in service.ledger.entries] == ["scratch", "warm-start"]
    assert service.ledger.mu_squared > spent


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delta": 1.5}, "delta 1.5: expected a number between 0 and 1"),
        ({"epsilon": -1.0}, "epsilon -1: expected a positive number"),
        ({"budget": np.inf}, "budget: epsilon inf"),
        ({"epsilon": 300.0}, "epsilon 300: noise is calibrated only below 200"),
        ({"steps": 0}, "steps 0"),
        ({"c": 0.0}, "c 0: the weight constant"),
        ({"kernel": "stabel"}, "unknown kernel 'stabel': did you mean 'stable'"),
        ({"adjacency": "add"}, "unknown adjacency 'add'"),
        ({"as_published": ("sigmas",)}, "unknown as_published 'sigmas': did you mean 'sigma'"),
    ],
)
def test_terms_that_make_no_sense_are_named(terms, changes, words):
    with pytest.raises(UserError, match=words):
        assert replace(terms, **changes).multiplier


def test_an_unknown_protocol_is_named(table, terms):
    with pytest.raises(UserError, match="unknown protocol 'adaptative': did you mean 'adaptive'"):
        explainer(table, terms, "adaptative")


def test_what_is_published_is_charged_at_its_real_cost(terms):
    honest = ExplanationTerms(epsilon=0.1, delta=1e-6, budget=1.0, steps=300)
    sigma = replace(honest, as_published=("sigma",))
    assert epsilon_of_gdp(math.sqrt(300 * sigma.step_cost), 1e-6) < 0.006
    weight = replace(honest, as_published=("weight", "uncentred"))
    assert weight.step_cost == pytest.approx(1.527**2 * honest.step_cost, rel=1e-3)
    assert not replace(honest, as_published=("beta",)).guaranteed


def test_without_a_seed_every_answer_has_noise_of_its_own(table, terms):
    services = [explainer(table, terms, seed=None) for _ in range(2)]
    answers = [service.answer(np.repeat(table.records[:1], 2, axis=0)).explanations for service in services]
    assert len({row.tobytes() for rows in answers for row in rows}) == 4


def test_under_one_seed_other_terms_or_records_have_other_noise(clustered):
    """Equal noise at two scales could be subtracted; the explanations of f = 0 are noise alone."""
    records = clustered(4000, 64).records
    changed = records.copy()
    changed[17, 3] += 1e-3
    one = ExplanationTerms(epsilon=1.0, delta=1e-6, budget=1000.0, steps=1)

    def released(terms, records=records, protocol="non-adaptive"):
        service = PrivateExplainer(ExplanationSet.from_arrays(records, np.zeros(4000)), terms, protocol, seed=3)
        return service.answer(records[:1], np.zeros(1)).explanations[0]

    others = [released(replace(one, **change)) for change in ({"epsilon": 2.0}, {"delta": 1e-7}, {"budget": 9.0})]
    all_of_them = [released(one), *others, released(one, changed), released(one, protocol="adaptive")]
    assert np.abs(np.corrcoef(all_of_them) - np.eye(6)).max() < 0.55
    np.testing.assert_array_equal(released(one), all_of_them[0])


def test_the_ledger_of_the_data_set_is_charged_once_with_the_whole_budget(table, terms, tmp_path):
    own, path = tmp_path / "own", tmp_path / "data"
    budget = ledger.LedgerTerms("table", "record", 10.0, terms.delta, filter="gdp")
    ledger.charge(path, budget, [])
    for _ in range(2):  # the second one goes on with the first one's ledger
        service = explainer(table, terms, ledger=own, data_ledger=path, seed=None)
        service.ledger.close()
    (entry,) = ledger.read_ledger(path)[1]
    assert entry.what == "explanations"
    assert charge_of(entry.terms).mu_squared() == pytest.approx(terms.mu_squared)
    with pytest.raises(UserError, match="no guarantee to charge"):
        explainer(table, terms, ledger=tmp_path / "seeded", data_ledger=path, seed=0)
    explainer(table, terms, ledger=tmp_path / "tried", seed=0).ledger.close()
    with pytest.raises(UserError, match="created with other noise"):  # its answers are functions of the records
        explainer(table, terms, ledger=tmp_path / "tried", data_ledger=path, seed=None)
    with pytest.raises(UserError, match="adjacency 'replacement'"):
        other = replace(terms, adjacency="replacement")
        explainer(table, other, ledger=tmp_path / "other", data_ledger=path, seed=None)
    explainer(table, terms, ledger=tmp_path / "other-terms").ledger.close()


def test_explanations_from_the_records_of_a_released_model_are_charged_with_it(table, terms, tmp_path):
    pool, path = tmp_path / "results" / "pools" / "people", tmp_path / "people.ledger"
    pool.mkdir(parents=True)
    np.save(pool / "records.npy", table.records)
    mapped = np.load(pool / "records.npy", mmap_mode="r")
    explained = ExplanationSet.from_arrays(mapped, table.black_box(mapped))
    PrivateExplainer(explained, terms, seed=None)
    uncharged = tmp_path / "results" / ".uncharged-people"
    write_json(uncharged, {"entries": []})
    with pytest.raises(UserError, match="released from these records without a ledger"):
        PrivateExplainer(explained, terms, seed=None)
    ledger.charge(tmp_path / "foreign", ledger.LedgerTerms("visits", "record", 10.0, terms.delta, filter="gdp"), [])
    with pytest.raises(UserError, match="released from these records without a ledger"):
        PrivateExplainer(explained, terms, seed=None, data_ledger=tmp_path / "foreign")
    uncharged.unlink()
    charged = ledger.charge(path, ledger.LedgerTerms("people", "record", 10.0, terms.delta, filter="gdp"), [])
    kept = {"ledger": charged.ledger, "head": charged.head, "entries": 0}
    write_json(tmp_path / "results" / ".ledger-people", kept)
    ledger.charge(tmp_path / "other", ledger.LedgerTerms("people", "record", 10.0, terms.delta, filter="gdp"), [])
    view = ExplanationSet.from_arrays(np.asarray(mapped)[:-1], table.black_box(mapped[:-1]))
    strided = np.lib.stride_tricks.as_strided(mapped)
    behind = ExplanationSet.from_arrays(strided, table.black_box(strided))
    for these, other in ((explained, None), (explained, tmp_path / "other"), (view, None), (behind, None)):
        with pytest.raises(UserError, match=f"charged to the ledger {charged.ledger}: explanations"):
            PrivateExplainer(these, terms, seed=None, data_ledger=other)
    PrivateExplainer(explained, terms, seed=0)  # for audit only
    write_json(tmp_path / "results" / ".ledger-people", kept | {"head": "0" * 64, "entries": 1})
    with pytest.raises(UserError, match=r"0 entries, and not the 1 that a release from .* saw: an older copy"):
        PrivateExplainer(explained, terms, seed=None, data_ledger=path)
    write_json(tmp_path / "results" / ".ledger-people", kept)
    PrivateExplainer(explained, terms, seed=None, data_ledger=path)
    assert [one.what for one in ledger.read_ledger(path)[1]] == ["explanations"]
    np.save(pool / "public.npy", table.records)
    public = np.load(pool / "public.npy", mmap_mode="r")
    PrivateExplainer(ExplanationSet.from_arrays(public, table.black_box(public)), terms, seed=None)


@pytest.mark.parametrize("link", ["array", "pool", "results", "none"])
def test_a_release_is_known_before_every_answer_and_behind_links(table, terms, tmp_path, link):
    results, path, own = tmp_path / "results", tmp_path / "people.ledger", tmp_path / "own"
    array = results / "pools" / "people" / "records.npy"
    array.parent.mkdir(parents=True)
    np.save(array, table.records)
    linked = {
        "array": (array, tmp_path / "x.npy", tmp_path / "x.npy"),
        "pool": (array.parent, tmp_path / "x", tmp_path / "x" / "records.npy"),
        "results": (results, tmp_path / "x", tmp_path / "x" / "pools" / "people" / "records.npy"),
    }
    named = array
    if link in linked:
        target, at, named = linked[link]
        at.symlink_to(target)
    mapped = np.load(named, mmap_mode="r")
    explained = ExplanationSet.from_arrays(mapped, table.black_box(mapped))
    service = PrivateExplainer(explained, terms, "non-adaptive", table.black_box, ledger=own)
    service.answer(table.records[:1])
    spent, kept = service.epsilon, results / ".ledger-people"
    write_json(results / ".uncharged-people", {"entries": []})
    with pytest.raises(UserError, match="released from these records without a ledger"):
        service.answer(table.records[1:2])
    (results / ".uncharged-people").unlink()
    charged = ledger.charge(path, ledger.LedgerTerms("people", "record", 10.0, terms.delta, filter="gdp"), [])
    write_json(kept, {"ledger": charged.ledger, "head": charged.head, "entries": 0})
    with pytest.raises(UserError, match=f"charged to the ledger {charged.ledger}: explanations"):
        service.answer(table.records[1:2])
    results.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="moved or removed since its records were mapped"):
        service.answer(table.records[1:2])
    (tmp_path / "moved").rename(results)
    assert service.epsilon == spent
    service.ledger.close()
    again = PrivateExplainer(explained, terms, "non-adaptive", table.black_box, ledger=own, data_ledger=path)
    again.answer(table.records[1:2])
    (entry,) = ledger.read_ledger(path)[1]  # the whole budget, of which some was spent before
    assert charge_of(entry.terms).mu_squared() == pytest.approx(terms.mu_squared) and again.epsilon > spent


def test_copies_of_a_ledger_are_noticed_beside_the_ledger_of_the_data_set(table, terms, tmp_path):
    path, own, copy = tmp_path / "people.ledger", tmp_path / "own", tmp_path / "copy"
    ledger.charge(path, ledger.LedgerTerms("people", "record", 100.0, terms.delta, filter="gdp"), [])
    explainer(table, terms, ledger=own, data_ledger=path, seed=None).ledger.close()
    copy.write_bytes(own.read_bytes())
    one, other = (explainer(table, terms, ledger=each, data_ledger=path, seed=None) for each in (own, copy))
    one.answer(table.records[:1])
    with pytest.raises(UserError, match="another copy of this ledger has answered since"):
        other.answer(table.records[:1])
    one.answer(table.records[1:2])
    one.ledger.close()
    other.ledger.close()
    with pytest.raises(UserError, match="an older copy was restored"):
        explainer(table, terms, ledger=copy, data_ledger=path, seed=None)
    explainer(table, terms, ledger=own, data_ledger=path, seed=None).ledger.close()


@pytest.mark.parametrize("answers", [0, 1])
def test_a_ledger_that_was_charged_goes_on_only_beside_what_remembers_it(table, terms, tmp_path, answers):
    path, own, moved = tmp_path / "people.ledger", tmp_path / "own", tmp_path / "moved" / "people.ledger"
    ledger.charge(path, ledger.LedgerTerms("people", "record", 100.0, terms.delta, filter="gdp"), [])
    service = explainer(table, terms, ledger=own, data_ledger=path, seed=None)
    service.answer(table.records[:answers])
    service.ledger.close()
    (mark,) = tmp_path.glob(".people.ledger.*")
    moved.parent.mkdir()
    path.rename(moved)
    for _ in range(2):
        with pytest.raises(UserError, match=r"people\.ledger\.\w+: missing, .* move it along with the ledger"):
            explainer(table, terms, ledger=own, data_ledger=moved, seed=None)
    mark.rename(moved.parent / mark.name)
    explainer(table, terms, ledger=own, data_ledger=moved, seed=None).answer(table.records[:1])
    assert len(ledger.read_ledger(moved)[1]) == 1


@pytest.mark.parametrize("step", ["mia_audit.storage.write_json", "mia_audit.privacy.ledger.add"])
def test_a_kill_before_the_budget_is_charged_locks_nobody_out(table, terms, tmp_path, monkeypatch, step):
    path, own = tmp_path / "people.ledger", tmp_path / "own"
    ledger.charge(path, ledger.LedgerTerms("people", "record", 100.0, terms.delta, filter="gdp"), [])
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(step, killed)
        explainer(table, terms, ledger=own, data_ledger=path, seed=None)
    assert not ledger.read_ledger(path)[1]
    explainer(table, terms, ledger=own, data_ledger=path, seed=None).answer(table.records[:1])
    assert len(ledger.read_ledger(path)[1]) == 1


@pytest.mark.parametrize("name", ["ledger", None])
def test_after_an_interrupt_an_explainer_answers_no_more(table, terms, tmp_path, monkeypatch, name):
    path = name and tmp_path / name
    service = explainer(table, terms, seed=None, ledger=path)
    with monkeypatch.context() as patched:
        patched.setattr(ExplanationLedger, "_take", killed)
        for begun in (lambda: service.answer(table.records[:1]), lambda: explainer(table, terms, seed=None)):
            with pytest.raises(Killed):
                begun()
    with pytest.raises(UserError, match="closed; nothing was released"):
        service.answer(table.records[1:2])
    explainer(table, terms, seed=None, ledger=path).answer(table.records[1:2])


def test_whatever_is_interrupted_between_charges_and_answers_the_budget_holds(table, terms, tmp_path, monkeypatch):
    """Ctrl-C after an entry is on disk, and whoever goes on with the same explainer."""
    few, path = replace(terms, budget=1.0), tmp_path / "ledger"
    service = explainer(table, few, seed=None, ledger=path)
    for number in range(12):
        with monkeypatch.context() as patched, contextlib.suppress(Killed, UserError):
            patched.setattr(ExplanationLedger, "_take", killed)
            service.answer(table.records[number : number + 1])
        try:
            service.answer(table.records[20 + number : 21 + number])
        except UserError:
            service.ledger.close()
            service = explainer(table, few, seed=None, ledger=path)
    service.ledger.close()
    with contextlib.closing(explainer(table, few, seed=None, ledger=path).ledger) as kept:
        assert few.mu_squared / 2 < kept.mu_squared <= few.mu_squared * (1 + 1e-12)


def test_of_two_copies_that_answer_at_the_same_moment_one_is_refused(table, terms, tmp_path, monkeypatch):
    path, own, copy = tmp_path / "people.ledger", tmp_path / "own", tmp_path / "copy"
    ledger.charge(path, ledger.LedgerTerms("people", "record", 100.0, terms.delta, filter="gdp"), [])
    explainer(table, terms, ledger=own, data_ledger=path, seed=None).ledger.close()
    copy.write_bytes(own.read_bytes())
    one, other = (explainer(table, terms, ledger=each, data_ledger=path, seed=None) for each in (own, copy))
    append, refused = ledger.Ledger.append, []

    def answer():
        try:
            other.answer(table.records[:1])
        except UserError as error:
            refused.append(str(error))

    thread = threading.Thread(target=answer)

    def slowly(kept, entries):
        append(kept, entries)
        monkeypatch.setattr(ledger.Ledger, "append", append)
        thread.start()
        thread.join(0.5)  # the time that the copy has, if it does not wait

    monkeypatch.setattr(ledger.Ledger, "append", slowly)
    one.answer(table.records[:1])
    thread.join()
    assert len(refused) == 1 and "another copy of this ledger has answered since" in refused[0]
