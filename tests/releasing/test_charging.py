"""Games about book-keeping: somebody who leaves the ledger out, puts older files back, or gives records other names."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.learners import Compute
from mia_audit.privacy.ledger import add, read_ledger
from mia_audit.releasing import charging
from mia_audit.releasing import release as releasing
from mia_audit.releasing.charging import AGAIN, MODEL, charge_for
from mia_audit.releasing.release import release
from mia_audit.storage import write_json

from ..killing import Killed
from .conftest import ROWS
from .test_release import LEDGER, charged_steps

BOTH = {"rows": ROWS, "same": ROWS | {"source": "arrays"}}


def released(prepared, out="out"):
    return release(prepared, "0" * 64, Path(out), Compute())


def refused(prepared, match):
    """Check that nothing is charged or written."""
    before = {path: path.read_bytes() for path in Path().glob("*ledger")}
    with pytest.raises(UserError, match=match) as caught:
        released(prepared, "refused")
    assert "\n" not in str(caught.value) and not Path("refused").exists()
    assert {path: path.read_bytes() for path in Path().glob("*ledger")} == before


def test_a_config_without_the_ledger_is_refused(recipe):
    released(recipe(privacy=LEDGER))
    refused(recipe(), r"privacy\.ledger: missing, but releases from rows were charged to the ledger [0-9a-f]{32}")
    refused(recipe("rows/mlp/none-epsinf"), r"privacy\.ledger: missing")
    released(recipe(privacy=LEDGER), "again")


def test_what_was_released_without_a_ledger_is_charged_to_the_first(recipe):
    first = released(recipe())
    assert first["assumptions"][-1].startswith("Nothing else was released")
    second = released(recipe(), "second")
    assert second["assumptions"][-1].startswith("Besides 1 that this audit released before, nothing else")
    refused(recipe(privacy=LEDGER | {"epsilon": 6.5}), "the budget would be overdrawn")
    third = released(recipe(privacy=LEDGER | {"epsilon": 30}), "third")
    charged = read_ledger(Path("rows.ledger"))[1]
    assert [one.released["id"] for one in charged] == [card["id"] for card in (first, second, third)]
    released(recipe(privacy=LEDGER | {"epsilon": 30}), "fourth")
    assert len(read_ledger(Path("rows.ledger"))[1]) == 4


def test_an_older_copy_of_the_ledger_is_refused(recipe):
    prepared = recipe(privacy=LEDGER)
    released(prepared)
    older = Path("rows.ledger").read_bytes()
    released(prepared, "second")
    newest = Path("rows.ledger").read_bytes()
    Path("rows.ledger").write_bytes(older)
    refused(prepared, "1 entries, and not the 2 that an earlier release of this audit saw: an older copy")
    Path("rows.ledger").write_bytes(newest)
    released(prepared, "third")
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == [MODEL, AGAIN, AGAIN]


def test_what_older_ledgers_and_results_show_is_what_the_documentation_says(recipe):
    prepared, ledger = recipe(privacy=LEDGER), Path("rows.ledger")
    released(prepared, "first")
    kept = next(Path("results").glob("**/.ledger-rows"))
    older = ledger.read_bytes(), kept.read_bytes()
    released(prepared, "second")
    kept.write_bytes(older[1])
    released(prepared, "third")  # older results alone: charged after everything
    assert len(read_ledger(ledger)[1]) == 3
    ledger.write_bytes(older[0])
    kept.write_bytes(older[1])
    refused(prepared, "1 entries, and not the 2 that second/card.json states")  # both together, beside a card
    ledger.unlink()
    kept.unlink()
    refused(prepared, "0 entries, and not the 1 that first/card.json states")
    ledger.write_bytes(older[0])
    kept.write_bytes(older[1])
    shutil.move("results", "gone")
    ledger.unlink()
    refused(recipe(privacy=LEDGER), "0 entries, and not the 1 that first/card.json states")  # of an audit run anew
    shutil.rmtree("results")
    shutil.move("gone", "results")
    ledger.write_bytes(older[0])
    Path("elsewhere").mkdir()
    released(prepared, "elsewhere/fourth")  # without a card not noticed, and two releases are not counted
    assert len(read_ledger(ledger)[1]) == 2


def test_the_same_records_under_another_part_or_name_are_refused(recipe):
    north = LEDGER | {"ledger": "{dataset}.ledger", "part": "hospitals/north"}
    released(recipe(privacy=north, datasets=BOTH))
    refused(recipe(privacy=north | {"part": "hospitals/south"}, datasets=BOTH), "as the part 'hospitals/north' before")
    other = recipe("same/mlp/dp-sgd-eps4", privacy=north, datasets=BOTH)
    refused(other, r"some of its records are in .*pools/rows too, .* as its part 'hospitals/north'")
    Path("results", "tiny").rename(Path("results", "first"))
    refused(recipe(privacy=LEDGER | {"ledger": "new.ledger"}), r"some of its records are in .*first/pools/rows too")
    released(recipe(privacy=north | {"ledger": "rows.ledger"}), "third")
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == [MODEL, AGAIN]


def test_the_same_records_in_the_results_of_a_seed_are_refused(recipe):
    released(recipe(privacy=LEDGER))
    Path("results", "several").mkdir()
    Path("results", "tiny").rename(Path("results", "several", "seed-0"))
    other = recipe(privacy=LEDGER | {"ledger": "new.ledger"})
    refused(other, r"some of its records are in .*several/seed-0/pools/rows too")
    Path("results", "tiny").rename(Path("results", "several", "seed-1"))
    refused(replace(other, results=Path("results", "several", "seed-1")), r"seed-0/pools/rows too")
    Path("results", "several", "seed-0").rename(Path("results", "first"))
    refused(replace(other, results=Path("results", "several", "seed-1")), r"first/pools/rows too")


def ended_from_an_older_state(prepared, kill_at):
    """Kill a release in its fourth epoch, put its state in `older` back and end it; return the card and the steps begun."""
    begun = kill_at(3 * 7 + 2)
    with pytest.raises(Killed):
        released(prepared)
    taken = begun()
    shutil.rmtree(".out.unfinished")
    Path("older").rename(".out.unfinished")
    begun = kill_at(0)
    card = released(prepared)
    return card, taken + begun()


def test_an_unfinished_release_that_is_put_back_is_charged_for_all_that_was_run(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 50}, training={"epochs": 4, "batch": 10})
    kill_at(1)
    with pytest.raises(Killed):
        released(prepared)
    shutil.copytree(".out.unfinished", "older")
    card, taken = ended_from_an_older_state(prepared, kill_at)
    assert taken == 23 + 28
    assert sum(terms["steps"] for terms in card["privacy"]["charged"]) >= 1 + taken
    assert charged_steps() >= 1 + taken
    assert not list(Path("results").glob("**/.begun-*"))


def test_a_release_whose_count_of_epochs_is_lost_is_charged_whole_again(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 20})
    kill_at(9)
    with pytest.raises(Killed):
        released(prepared)
    (counter,) = Path("results").glob("**/.begun-*")
    counter.unlink()
    kill_at(0)
    released(prepared)
    assert charged_steps() == 28


def test_what_ran_before_a_state_without_a_charge_was_put_back_is_in_the_card(recipe, kill_at, monkeypatch):
    prepared = recipe(privacy=LEDGER | {"epsilon": 50}, training={"epochs": 4, "batch": 10})

    def copied(*charges):
        if not Path("older").exists():
            shutil.copytree(".out.unfinished", "older")
        return charge_for(*charges)

    monkeypatch.setattr(releasing, "charge_for", copied)
    card, taken = ended_from_an_older_state(prepared, kill_at)
    assert sum(terms["steps"] for terms in card["privacy"]["charged"]) >= taken
    assert charged_steps() >= taken


def test_results_remember_a_charge_before_another_process_can_make_one(recipe, monkeypatch):
    def written(path, values):
        with pytest.raises(UserError, match="another process uses this ledger"):
            add(Path("rows.ledger"), [], patience=0)
        write_json(path, values)

    monkeypatch.setattr(charging, "write_json", written)
    released(recipe(privacy=LEDGER))
