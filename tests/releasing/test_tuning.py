"""Tuning: the best of a random number of private trainings, and what the whole of it is charged."""

import json
from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.learners import Compute
from mia_audit.privacy import spending
from mia_audit.privacy.dataset_ledger import RESTART, read_ledger
from mia_audit.releasing import tuning
from mia_audit.releasing.tuning import Search, tune

from ..killing import Killed, killed

LEDGER = {"ledger": "rows.ledger", "epsilon": 30}
FLAT = {"dp-sgd": {"epsilon": [8], "clipping": "flat", "accountant": "rdp"}}
SETTING = "rows/mlp/dp-sgd-eps8"
SEARCH = Search(learning_rates=(1e-4, 0.05), clip_norms=(0.5,), mean=3.0)


@pytest.fixture
def runs(monkeypatch):
    """Draw a number of trainings, and see which were done."""
    trained = []
    monkeypatch.setattr(tuning, "draw_runs", lambda mean, shape, uniform: 4)
    score = tuning._accuracy

    def scored(model, public):
        trained.append(score(model, public))
        return trained[-1]

    monkeypatch.setattr(tuning, "_accuracy", scored)
    return trained


@pytest.mark.slow
def test_the_best_is_released_for_the_price_of_the_whole(recipe, runs, capfd):
    prepared = recipe(SETTING, mechanisms=FLAT, privacy=LEDGER)
    capfd.readouterr()
    card = tune(prepared, SEARCH, "0" * 64, Path("out"), Compute())
    assert len(runs) == 4
    assert card["tuning"]["public_accuracy"] == max(runs)
    assert 7.9 < card["privacy"]["epsilon"] <= 8
    assert card["privacy"]["accountant"] == "rdp"
    assert card["tuning"]["epsilon_of_run"] < 7
    (entry,) = read_ledger(Path("rows.ledger"))[1]
    assert (entry.what, entry.terms["kind"], len(entry.terms["runs"])) == ("tuning", "selection", 2)
    assert card["privacy"]["charged"] == [json.loads(json.dumps(entry.terms))]
    assert spending.epsilon_by_orders([spending.charge_of(entry.terms)], 1e-5) == card["privacy"]["epsilon"]
    # how many there were is part of no output
    out, err = capfd.readouterr()
    assert err.count("\n") <= 2 and not out  # the charge and, if it created the ledger, that
    assert "4" not in {str(value) for key, value in card["tuning"].items() if key != "candidates"}


@pytest.mark.slow
def test_a_killed_tuning_is_charged_whole_again(recipe, runs, monkeypatch):
    prepared = recipe(SETTING, mechanisms=FLAT, privacy=LEDGER)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(tuning, "_accuracy", killed)
        tune(prepared, SEARCH, "0" * 64, Path("out"), Compute())
    card = tune(prepared, SEARCH, "0" * 64, Path("out"), Compute())
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == ["tuning", RESTART]
    assert card["privacy"]["epsilon"] > 9


def refused(recipe, cases):
    for setting, changes, search, match in cases:
        with pytest.raises(UserError, match=match) as caught:
            tune(recipe(setting, **changes), search, "0" * 64, Path("out"), Compute())
        assert "\n" not in str(caught.value)
        assert not Path("out").exists()


def test_what_cannot_be_tuned_is_one_line(recipe):
    cases = (
        ("rows/mlp/none-epsinf", {}, SEARCH, "only private training"),
        ("rows/mlp/dp-sgd-eps4", {}, SEARCH, "clipping is automatic"),
    )
    refused(recipe, cases)


@pytest.mark.slow
def test_a_budget_or_a_ledger_that_cannot_hold_tuning_is_one_line(recipe):
    small = {"dp-sgd": {"epsilon": [0.001], "accountant": "rdp"}}
    cases = (
        ("rows/mlp/dp-sgd-eps0.001", {"mechanisms": small}, Search(), "is too small to select the best of 10"),
        (
            SETTING,
            {"mechanisms": FLAT, "privacy": LEDGER | {"planned": [SETTING]}},
            SEARCH,
            "among the remaining entries|tuning",
        ),
        (SETTING, {"mechanisms": FLAT, "privacy": LEDGER | {"filter": "gdp"}}, SEARCH, "tuning, which a ledger"),
    )
    refused(recipe, cases)
