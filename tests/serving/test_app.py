import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

from mia_audit.explain.private_local import ExplanationSet, PrivateExplainer
from mia_audit.serving.app import create_app, described
from mia_audit.serving.keys import new_key, read_keys
from mia_audit.serving.queries import largest_body


@pytest.fixture
def client(tmp_path):
    """Return a client of a desk, whose requests are alice's or somebody else's."""

    def of(desk, caller="alice"):
        path = tmp_path / "keys"
        given = {name: new_key(path, name) for name in desk.accounts} if not path.exists() else known
        known.update(given)
        app = create_app(desk, read_keys(path, desk.accounts))
        return TestClient(app, headers={"Authorization": f"Bearer {given[caller]}"}, raise_server_exceptions=False)

    known: dict[str, str] = {}
    return of


def asked(record):
    return {"query": record.tolist()}


def test_an_explanation_is_released_with_its_cost_and_what_is_left(made, table, client, tmp_path):
    desk = made(ledger=tmp_path / "ledger")
    alice = client(desk)
    first = alice.post("/explain", json=asked(table.records[0])).json()
    again = alice.post("/explain", json=asked(table.records[0])).json()
    (entry,) = desk.explainer.ledger.entries
    assert first["explanation"] == again["explanation"] == entry.explanation.tolist()
    assert (first["source"], again["source"]) == ("scratch", "reused")
    assert (first["mu_squared"], again["mu_squared"]) == (entry.mu_squared, 0.0)
    assert first["left"]["caller"]["epsilon_spent"] == pytest.approx(0.5)
    budget = alice.get("/budget").json()
    assert budget["left"] == first["left"] and budget["caller"] == "alice"
    assert (budget["epsilon"], budget["delta"], budget["unit"], budget["adjacency"]) == (
        2.0,
        1e-6,
        "record",
        "zero-out",
    )
    assert "Gaussian DP" in budget["accountant"]
    desk.close()


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Basic YWxpY2U6", "Bearer \xff"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/explain"), ("GET", "/budget")])
def test_who_has_no_key_is_refused_before_anything_is_read(made, client, header, method, path):
    desk = made()
    stranger = client(desk)
    stranger.headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    answer = stranger.request(method, path, content=b"[" * 10_000_000)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert desk.explainer.ledger.entries == []
    desk.close()


def test_errors_are_one_line_of_json(made, client, table):
    desk = made()
    alice = client(desk)
    largest = largest_body((4,))
    answers = {
        400: alice.post("/explain", content=b"{"),
        413: alice.post("/explain", content=b" " * (largest + 1)),
        422: alice.post("/explain", json={"query": [1e30, 0, 0, 0]}),
        404: alice.get("/ledger"),
        405: alice.get("/explain"),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert set(answer.json()) == {"error"} and "\n" not in answer.json()["error"]
    assert "between −1e+06 and 1e+06 in units of the scale" in answers[422].json()["error"]
    assert alice.post(
        "/explain", content=b" " * (largest - 300) + json.dumps(asked(table.records[0])).encode()
    ).is_success
    desk.close()


def test_an_exhausted_budget_is_403_with_what_is_left(made, terms, client, table):
    desk = made(terms=replace(terms, budget=0.1))
    answer = client(desk).post("/explain", json=asked(table.records[0]))
    assert answer.status_code == 403
    assert answer.json()["left"]["total"]["share_left"] == 1.0
    desk.close()


def test_an_error_of_the_service_is_one_line_too(made, client, table, monkeypatch):
    desk = made()
    monkeypatch.setattr(desk.explainer, "recall", lambda *_: 1 / 0)
    answer = client(desk).post("/explain", json=asked(table.records[0]))
    assert (answer.status_code, answer.json()) == (500, {"error": "an error in the service; its log has the details"})
    desk.close()


def test_health_needs_no_key_and_says_when_the_ledger_has_failed(made, client):
    desk = made()
    anybody = client(desk)
    anybody.headers = {}
    assert anybody.get("/health").json() == {"status": "ok"}
    desk.failure = "the disk is full"
    assert anybody.get("/health").status_code == 503
    desk.close()


def test_the_page_says_what_is_promised_and_loads_nothing(made, client):
    desk = made()
    anybody = client(desk)
    answer = anybody.get("/docs")
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
    assert "ε = 2 at δ = 1e-06 per record (zero-out" in answer.text
    assert "POST /explain" in answer.text and "src=" not in answer.text and "://" not in answer.text
    openapi = anybody.get("/openapi.json").json()
    body = openapi["paths"]["/explain"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["query"]["minItems"] == 4
    assert {"401", "403", "422"} <= openapi["paths"]["/explain"]["post"]["responses"].keys()
    desk.close()


def test_the_card_of_a_released_black_box_is_in_the_description(made):
    desk = made()
    card = {"epsilon": 3.999, "delta": 1e-5, "unit": "record", "adjacency": "one more or less", "accountant": "prv"}
    text = described(desk.facts() | {"black_box": card})
    assert (
        "The black box's own training: ε = 3.999 at δ = 1e-05 per record (one more or less; accountant: prv)." in text
    )
    assert "own training" not in described(desk.facts())
    desk.close()


def test_no_key_is_ever_logged_or_answered(made, client, table, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    desk = made()
    alice = client(desk)
    key = alice.headers["Authorization"].removeprefix("Bearer ")
    answers = [alice.post("/explain", json=asked(table.records[0])), alice.get("/budget"), alice.get(f"/{key}")]
    logged = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("http"))
    assert key not in logged + "".join(capfd.readouterr())
    assert all(key not in answer.text for answer in answers)
    desk.close()


def test_what_is_free_and_what_is_refused_is_the_same_for_neighbouring_data_sets(made, terms, table, client):
    """Whoever sees all answers: with the same charged answers, all else has the same bytes with a record or without it."""
    explained = table.explained
    values = explained.values.copy()
    values[300] = np.nan  # its term is removed, the number of records being public
    neighbour = ExplanationSet.of(table.records, values, explained.scale)
    first = PrivateExplainer(explained, terms, "adaptive")
    first.answer(table.records[300:303], table.black_box(table.records[300:303]))
    seen = []
    for one in (explained, neighbour):
        desk = made(terms=replace(terms, budget=0.5), explained=one)
        desk.explainer.ledger.append(first.ledger.entries)
        alice = client(desk)
        requests = [alice.post("/explain", json=asked(record)) for record in table.records[::25]]
        requests += [
            alice.get("/budget"),
            alice.post("/explain", json={"query": [9e9] * 4}),
            alice.get("/openapi.json"),
        ]
        seen.append([(answer.status_code, sorted(answer.headers.items()), answer.content) for answer in requests])
        assert {json.loads(answer.content).get("source") for answer in requests[:-3]} == {"reused", "history"}
        assert len(desk.explainer.ledger.entries) == len(first.ledger.entries)
        desk.close()
    assert seen[0] == seen[1]
