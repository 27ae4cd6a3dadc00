import asyncio
import errno
import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon_bounds import gaussian_epsilon
from mia_audit.explain.private_local import ExplanationSet, PrivateExplainer, Terms
from mia_audit.explain.private_local import service as private_service
from mia_audit.privacy import ledger
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.privacy.gdp import limit_for
from mia_audit.serving import desk as desk_module
from mia_audit.serving.desk import Desk, Refused
from mia_audit.serving.subject import Subject


def ask(desk, *questions):
    """Ask all at once; return answers, and Refused for those that got none."""

    async def all_of_them():
        asked = [desk.explain(record, caller) for record, caller in questions]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("protocol", ["non-adaptive", "adaptive", "enhanced"])
def test_racing_callers_overspend_neither_their_own_budget_nor_the_total(made, table, terms, protocol, tmp_path):
    path, callers = tmp_path / "ledger", {f"caller{number}": 0.8 for number in range(32)}
    desk = made(protocol, callers=callers, ledger=path)
    names = sorted(callers)
    answers = ask(desk, *((table.records[7 * k % 600], names[k % 32]) for k in range(160)))
    answered = [one for one in answers if isinstance(one, dict)]
    assert all(isinstance(one, dict) or one.status in (403, 503) for one in answers)
    desk.close()
    kept = ledger.read(path)[1]
    spent = dict.fromkeys(names, 0.0)
    for entry in kept:
        spent[entry.released["account"]] += entry.terms["mu_squared"]
    assert sum(one["mu_squared"] for one in answered) == pytest.approx(sum(spent.values()))
    assert epsilon_of_gdp(math.sqrt(sum(spent.values())), terms.delta) <= terms.budget * (1 + 1e-9)
    assert max(spent.values()) <= limit_for(0.8, terms.delta) * (1 + 1e-9)
    assert sum(spent.values()) > 0.5 * terms.mu_squared


def test_one_query_of_many_callers_at_once_is_charged_once(made, table):
    desk = made("non-adaptive", callers={f"caller{number}": 2.0 for number in range(8)})
    answers = ask(desk, *((table.records[0], name) for name in desk.accounts))
    assert sorted(one["source"] for one in answers) == ["reused"] * 7 + ["scratch"]
    assert len({tuple(one["explanation"]) for one in answers}) == 1
    assert len(desk.explainer.ledger.entries) == 1
    desk.close()


def test_a_caller_without_budget_gets_the_history_and_what_is_left(made, table):
    desk = made("non-adaptive", callers={"alice": 0.51, "bob": 2.0})
    first, second = ask(desk, (table.records[0], "alice"))[0], ask(desk, (table.records[9], "alice"))[0]
    assert (first["source"], second["source"], second["mu_squared"]) == ("scratch", "history", 0.0)
    assert second["left"]["caller"]["from_scratch_left"] == 0
    assert second["left"]["total"]["from_scratch_left"] >= 1
    assert ask(desk, (table.records[9], "bob"))[0]["source"] == "scratch"
    desk.close()


def test_an_exhausted_budget_without_history_says_what_is_left(made, table, terms):
    desk = made(terms=replace(terms, budget=0.1))
    (refused,) = ask(desk, (table.records[0], "alice"))
    assert refused.status == 403
    assert refused.left["total"] == {"epsilon": 0.1, "epsilon_spent": 0.0, "share_left": 1.0, "from_scratch_left": 0}
    desk.close()


def test_the_history_is_answered_while_the_records_are_read(made, table, monkeypatch):
    desk = made()
    ask(desk, (table.records[0], "alice"))
    begun, go_on, honest = threading.Event(), threading.Event(), private_service.descend

    def waiting(*arguments):
        begun.set()
        assert go_on.wait(60)
        return honest(*arguments)

    monkeypatch.setattr(private_service, "descend", waiting)

    async def both():
        slow = asyncio.create_task(desk.explain(table.records[300], "bob"))
        await asyncio.to_thread(begun.wait, 60)
        quick = await asyncio.wait_for(desk.explain(table.records[0], "alice"), 60)
        assert not slow.done()
        go_on.set()
        return quick, await slow

    quick, slow = asyncio.run(both())
    assert (quick["source"], quick["mu_squared"]) == ("reused", 0.0)
    assert slow["source"] in ("scratch", "warm-start")
    desk.close()


def test_a_caller_cannot_fill_the_line_for_the_others(made, table, monkeypatch):
    monkeypatch.setattr(desk_module, "PENDING", 2)
    go_on, honest = threading.Event(), private_service.descend
    monkeypatch.setattr(private_service, "descend", lambda *all_: go_on.wait(60) and honest(*all_))
    desk = made("non-adaptive")

    async def all_of_them():
        many = [asyncio.create_task(desk.explain(table.records[k], "alice")) for k in range(5)]
        while sum(one.done() for one in many) < 3:
            await asyncio.sleep(0.01)
        other = asyncio.create_task(desk.explain(table.records[300], "bob"))
        go_on.set()
        return await asyncio.gather(*many, other, return_exceptions=True)

    answers = asyncio.run(all_of_them())
    statuses = [one.status for one in answers[:5] if isinstance(one, Refused)]
    assert statuses == [429] * 3
    assert answers[5]["source"] == "scratch"
    assert not desk._pending.total() and not desk._waiting
    desk.close()


def test_nothing_is_answered_after_the_ledger_has_failed(made, table, tmp_path, monkeypatch):
    calls = []
    desk = made("adaptive", ledger=tmp_path / "ledger")
    desk.failed = lambda: calls.append(1)
    ask(desk, (table.records[0], "alice"))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger.os, "fsync", full)
    (refused,) = ask(desk, (table.records[300], "alice"))
    monkeypatch.undo()
    later = ask(desk, (table.records[300], "alice"), (table.records[0], "bob"))
    assert [one.status for one in (refused, *later)] == [503] * 3
    assert calls == [1] and "No space left on device" in desk.failure
    with pytest.raises(
        Refused
    ):  # what the last answer cost is in no file, and depends on noisy numbers that are in none
        desk.left("bob")
    desk.close()


@pytest.mark.parametrize(
    ("values", "status"), [(lambda q: np.full((1, 1), np.nan), 422), (lambda q: q[:0], 422), (lambda q: 1 / 0, 500)]
)
def test_a_black_box_that_has_no_value_costs_nothing(made, table, values, status, monkeypatch):
    desk = made()

    def black_box(query):
        try:
            return values(query)
        except ZeroDivisionError:
            raise UserError("box.py: it failed") from None

    monkeypatch.setattr(desk, "subject", replace(desk.subject, black_box=black_box))
    (refused,) = ask(desk, (table.records[0], "alice"))
    assert refused.status == status
    assert desk.explainer.ledger.mu_squared == 0
    desk.close()


def proved(monkeypatch, noise=1.0, trials=400):
    """Return the Gaussian lower bound on ε that a canary proves against the answers of desks, and what they charged.

    The canary's gradient is as long as the weights allow (tests/explain/private_local/test_canaries.py); without it a copy of the
    query stands in its place, whose term is zero. Only the generator's key is seeded here, so that the test can be repeated.
    """
    terms, random = Terms(4.0, 1e-6, 4.0, 1, 0.02), np.random.default_rng(0)
    monkeypatch.setattr(private_service.secrets, "token_bytes", random.bytes)
    honest = private_service.descend
    monkeypatch.setattr(
        private_service, "descend", lambda one, start, drawn, rate: honest(one, start, drawn * noise, rate)
    )
    seen: dict[bool, list[float]] = {True: [], False: []}
    for present in seen:
        points = np.zeros((8, 2))
        points[0, 0] = present * 1.001 * (math.sqrt(4 + 2 * terms.c) - 2) / 2
        explained = ExplanationSet.of(points, np.ones(8), scale=1.0)
        for _ in range(trials):
            explainer = PrivateExplainer(explained, terms, "adaptive")
            desk = Desk(
                Subject(explainer, lambda _: -np.ones((1, 1)), {"classes": ["a"]}, points.dtype), {"alice": 4.0}
            )
            answers = ask(desk, *[(np.zeros(2), "alice")] * 2, (np.array([9.0, 9.0]), "alice"))
            assert [one["source"] for one in answers] == ["scratch", "reused", "history"]
            seen[present].append(answers[0]["explanation"][0])
            desk.close()
    pilot = trials // 5
    threshold = (np.mean(seen[True][:pilot]) + np.mean(seen[False][:pilot])) / 2
    counts = [int((np.array(seen[present][pilot:]) > threshold).sum()) for present in (True, False)]
    return gaussian_epsilon(*counts, trials - pilot, trials - pilot, 0.05, 1e-6), explainer.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_a_canary_proves_no_more_of_a_desk_than_it_charges(monkeypatch, noise):
    """One answer is charged, the two that cost nothing say nothing more; with half the noise the claim is refuted."""
    bound, charged = proved(monkeypatch, noise)
    assert charged == pytest.approx(4.0)
    assert (bound <= charged) == (noise == 1.0)
    assert bound > 2.0
