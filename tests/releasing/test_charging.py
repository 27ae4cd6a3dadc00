"""Games about book-keeping: somebody who leaves the ledger out, puts older files back, or gives records other names."""

import collections
import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import replace
from importlib.metadata import version as installed
from pathlib import Path

import numpy as np
import pytest

from mia_audit.cli import main
from mia_audit.config.specs import PoolSpec
from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import load_source
from mia_audit.pools.store import ARRAY, write_pool
from mia_audit.privacy import ledger
from mia_audit.privacy.ledger import add, charge, read_ledger
from mia_audit.releasing import charging
from mia_audit.releasing import release as releasing
from mia_audit.releasing.charging import AGAIN, MODEL, charge_for
from mia_audit.releasing.release import release
from mia_audit.storage import read_table, table_metadata, write_json, write_table
from mia_audit.training.shadow import KeptEpochs

from ..killing import Killed, killed
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
    assert second["assumptions"][-1].startswith("Besides 1 begun before, nothing else")
    refused(recipe(privacy=LEDGER | {"epsilon": 6.5}), "the budget would be overdrawn")
    third = released(recipe(privacy=LEDGER | {"epsilon": 30}), "third")
    charged = read_ledger(Path("rows.ledger"))[1]
    assert [one.released["id"] for one in charged] == [card["id"] for card in (first, second, third)]
    released(recipe(privacy=LEDGER | {"epsilon": 30}), "fourth")
    assert len(read_ledger(Path("rows.ledger"))[1]) == 4


def test_what_was_released_without_a_ledger_counts_under_every_name(recipe):
    first = released(recipe(datasets=BOTH), "elsewhere/first")
    named = LEDGER | {"ledger": "{dataset}.ledger", "epsilon": 50}
    second = released(recipe("same/mlp/dp-sgd-eps4", datasets=BOTH), "second")
    assert second["assumptions"][-1].startswith("Besides 1 begun before")
    Path("results", "tiny").rename(Path("results", "renamed"))
    third = released(recipe(privacy=named, datasets=BOTH), "third")
    charged = [one.released["id"] for one in read_ledger(Path("rows.ledger"))[1]]
    assert sorted(charged) == sorted(card["id"] for card in (first, second, third))
    assert not list(Path("results").glob("**/.uncharged-*"))


def test_what_was_released_without_a_ledger_is_known_by_cards_after_results_were_made_anew(recipe):
    first = released(recipe(), "first")
    shutil.rmtree("results")
    second = released(recipe("rows/mlp/none-epsinf"), "second")
    shutil.rmtree("results")
    released(recipe(privacy=LEDGER | {"epsilon": "inf"}), "third")
    charged = read_ledger(Path("rows.ledger"))[1]
    assert [one.released["id"] for one in charged[:2]] == [first["id"], second["id"]]
    assert charged[0].terms == first["privacy"]["charged"][0]
    released(recipe(privacy=LEDGER | {"epsilon": "inf"}), "fourth")
    assert len(read_ledger(Path("rows.ledger"))[1]) == 4


@pytest.mark.parametrize("named", ["before", "while it is resumed", "afterwards"])
def test_a_ledger_has_all_charges_of_a_release_whose_results_were_made_anew(recipe, kill_at, named):
    with_ledger = {"privacy": LEDGER | {"epsilon": 50}}
    begun = kill_at(9)
    with pytest.raises(Killed):
        released(recipe(**with_ledger if named == "before" else {}))
    taken = begun()
    shutil.rmtree("results")
    begun = kill_at(0)
    card = released(recipe(**{} if named == "afterwards" else with_ledger))
    if named == "afterwards":
        shutil.copytree("out", "copy")
        shutil.rmtree("results")
        released(recipe("rows/mlp/none-epsinf", privacy=LEDGER | {"epsilon": "inf"}), "second")
    own = [one.terms for one in read_ledger(Path("rows.ledger"))[1] if one.released["id"] == card["id"]]
    assert own == card["privacy"]["charged"]
    assert sum(terms["steps"] for terms in own) >= taken + begun()


def test_a_kill_before_the_file_without_a_ledger_is_removed_charges_nothing_twice(recipe, monkeypatch):
    cards = [released(recipe()), released(recipe(), "second")]
    enough = LEDGER | {"epsilon": 50}
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(charging.ledger, "charge", lambda *given: (charge(*given), killed()))
        released(recipe(privacy=enough), "third")
    released(recipe(privacy=enough), "third")
    charged = [one.released["id"] for one in read_ledger(Path("rows.ledger"))[1]]
    assert charged[:2] == [card["id"] for card in cards] and not list(Path("results").glob("**/.uncharged-*"))


@pytest.mark.parametrize("kept", ["results", "a card"])
def test_what_was_released_before_is_in_no_plan(recipe, kept, capsys):
    """Privacy loss distributions of a plan hold if it was fixed before the first release; a filter takes what was released."""
    released(recipe(), "first")
    if kept == "a card":
        shutil.rmtree("results")
    planned = LEDGER | {"epsilon": 50, "planned": ["rows/mlp/dp-sgd-eps4"] * 2}
    refused(recipe(privacy=planned), r"privacy\.planned: 1 entries of releases were made before this plan")
    capsys.readouterr()
    assert released(recipe(privacy=LEDGER | {"epsilon": 50}), "second")["ledger"]["entries"] == 2
    assert ("without any earlier release" in capsys.readouterr().err) == (kept == "a card")


def test_releases_that_charge_at_the_same_moment_wait_for_one_another(recipe, monkeypatch):
    """The second process starts to charge while the first one has read the entries and not yet written them."""
    prepared, waited = recipe(), []

    def written(path, values):
        if path.name.startswith(ledger.UNCHARGED):
            with Path("results", charging.LOCK).open() as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            waited.append(path)
        write_json(path, values)

    monkeypatch.setattr(charging, "write_json", written)
    released(prepared)
    assert waited


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


def test_the_same_records_under_another_name_are_refused(recipe):
    each = LEDGER | {"ledger": "{dataset}.ledger"}
    released(recipe(privacy=each, datasets=BOTH))
    other = recipe("same/mlp/dp-sgd-eps4", privacy=each, datasets=BOTH)
    refused(other, r"some of its records are or were in .*pools/rows too, .* charge this one there as well")
    Path("results", "tiny").rename(Path("results", "first"))
    refused(
        recipe(privacy=LEDGER | {"ledger": "new.ledger"}), r"some of its records are or were in .*first/pools/rows too"
    )
    released(recipe(privacy=each | {"ledger": "rows.ledger"}), "third")
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == [MODEL, AGAIN]


@pytest.mark.parametrize("other", ["data set", "audit"])
def test_an_older_ledger_is_refused_beside_what_remembers_a_later_one_under_another_name(recipe, other):
    enough = {"privacy": LEDGER | {"epsilon": 30}}
    released(recipe(**enough), "elsewhere/first")
    shutil.copy("rows.ledger", "older")
    released(recipe(**enough), "elsewhere/second")
    shutil.copy("older", "rows.ledger")
    if other == "data set":
        later = recipe("same/mlp/dp-sgd-eps4", datasets={"same": ROWS}, **enough)
    else:
        Path("results", "tiny").rename(Path("results", "first"))
        later = recipe(**enough)
    refused(later, r"1 entries, and not the 2 that .*\.ledger-rows remembers: an older copy")


def test_the_same_records_in_the_results_of_a_seed_are_refused(recipe):
    released(recipe(privacy=LEDGER))
    Path("results", "several").mkdir()
    Path("results", "tiny").rename(Path("results", "several", "seed-0"))
    other = recipe(privacy=LEDGER | {"ledger": "new.ledger"})
    refused(other, r"some of its records are or were in .*several/seed-0/pools/rows too")
    Path("results", "tiny").rename(Path("results", "several", "seed-1"))
    refused(replace(other, results=Path("results", "several", "seed-1")), r"seed-0/pools/rows too")
    Path("results", "several", "seed-0").rename(Path("results", "first"))
    refused(replace(other, results=Path("results", "several", "seed-1")), r"first/pools/rows too")


WAS = r"some of its records are or were in .*pools/rows too"


@pytest.mark.parametrize("rebuilt", [False, True])
def test_records_of_a_pool_that_is_gone_are_known_under_every_name(recipe, rebuilt):
    first = recipe(privacy=LEDGER)
    released(first)
    section = PoolSpec.from_audit(first.audit, "rows").dataset
    source = load_source(section, "datasets.rows")
    shutil.rmtree(first.pool)
    if rebuilt:
        write_pool(build_pool(replace(source, records=source.records + 1), section, "rows", 0), first.pool)
    other = {"datasets": {"same": ROWS}, "setting": "same/mlp/dp-sgd-eps4"}
    refused(recipe(privacy=LEDGER | {"ledger": "new.ledger"}, **other), WAS)
    assert released(recipe(privacy=LEDGER, **other), "second")["ledger"]["entries"] == 2


@pytest.mark.parametrize("stated", [False, True])
def test_records_of_a_pool_that_another_tool_wrote_are_known_by_their_content(recipe, stated):
    def by_another_tool(prepared):
        path = prepared.pool / "records.parquet"
        table, known = read_table(path, "records"), table_metadata(path, "records")
        known.pop(ARRAY)
        wrong = table.set_column(table.column_names.index("sha256"), "sha256", [["0" * 64] * len(table)])
        write_table(path, wrong if stated else table.drop_columns("sha256"), "records", len(table), known)
        return prepared

    released(by_another_tool(recipe(privacy=LEDGER)))
    other = {"datasets": {"same": ROWS}, "setting": "same/mlp/dp-sgd-eps4"}
    refused(recipe(privacy=LEDGER | {"ledger": "new.ledger"}, **other), WAS)
    refused(by_another_tool(recipe(privacy=LEDGER | {"ledger": "new.ledger"}, **other)), WAS)


def test_results_without_hidden_files_are_charged_after_the_ledger_or_a_new_one_is_announced(recipe, capsys):
    prepared, path = recipe(privacy=LEDGER), Path("rows.ledger")
    released(prepared, "first/out")
    assert "a new ledger, without any earlier release" in capsys.readouterr().err
    path.rename("moved.ledger")
    refused(prepared, "a new one would forget them; run this in the folder where that ledger is")
    shutil.copytree("results", "copy", ignore=shutil.ignore_patterns(".*"))
    copied = replace(prepared, results=Path("copy", "tiny"))
    Path("moved.ledger").rename(path)
    released(copied, "second/out")
    assert len(read_ledger(path)[1]) == 2 and "a new ledger" not in capsys.readouterr().err
    path.unlink()
    shutil.rmtree("copy")
    shutil.copytree("results", "copy", ignore=shutil.ignore_patterns(".*"))
    released(copied, "third/out")  # not noticed
    assert len(read_ledger(path)[1]) == 1 and "a new ledger, without any earlier release" in capsys.readouterr().err


def test_what_was_charged_later_is_known_for_all_records_that_were_released(recipe):
    """A release without a ledger is charged with one of few of its records; one of others of them comes after that."""
    released(recipe(), "elsewhere/first")
    few = {"few": ROWS | {"records": 30}}
    assert released(recipe("few/mlp/dp-sgd-eps4", datasets=few, privacy=LEDGER), "second")["ledger"]["entries"] == 2
    Path("late").mkdir()
    for name in ("records", "labels"):
        np.save(Path("late", f"{name}.npy"), np.load(Path("data", f"{name}.npy"))[40:])
    late = {"late": ROWS | {"path": "late"}}
    refused(recipe("late/mlp/dp-sgd-eps4", datasets=late, privacy=LEDGER | {"ledger": "new.ledger"}), WAS)


def test_results_behind_a_link_are_compared_with_those_beside_the_link(recipe, tmp_path):
    released(recipe(privacy=LEDGER))
    results = Path("results", "tiny")
    results.rename("results/before")
    other = recipe(privacy=LEDGER | {"ledger": "new.ledger"})
    (tmp_path / "disk").mkdir()
    results.rename(tmp_path / "disk" / "tiny")
    results.symlink_to(tmp_path / "disk" / "tiny")
    refused(other, WAS)


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
    assert not list(Path().glob("**/.*begun-*"))


def test_a_release_whose_count_of_epochs_is_lost_is_charged_whole_again(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 20})
    kill_at(9)
    with pytest.raises(Killed):
        released(prepared)
    (counter,) = Path().glob(".rows.ledger.begun-*")
    counter.unlink()
    kill_at(0)
    released(prepared)
    assert charged_steps() == 28


def put_back(copy, folder):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(copy, folder)


@pytest.mark.parametrize("seed", [8, 21, 24, 30, 31])
def test_whatever_is_killed_lost_or_put_back_all_that_ran_is_charged(recipe, kill_at, seed):
    """Random actions of a user, of those that a ledger or the results tell of."""
    prepared = recipe(training={"epochs": 3, "batch": 35}, privacy=LEDGER | {"epsilon": "inf"})
    state, random, ran = Path(".out.unfinished"), np.random.default_rng(seed), collections.Counter()
    for number, action in enumerate(["train", "c", *random.choice(["train"] * 8 + [*"cppmmmblr"], 20)]):
        if action == "train" and not Path("out").exists():
            begun = kill_at(int(random.choice([0, 0, 1, 1, 2, 4])) if number else 2)
            with contextlib.suppress(Killed):
                released(prepared)
            kept = Path("out", "card.json") if Path("out").exists() else state / "release.json"
            one = json.loads(kept.read_text())["id"]
            ran[one] += begun()
            entries = [entry for entry in read_ledger(Path("rows.ledger"))[1] if entry.released["id"] == one]
            assert sum(entry.terms["steps"] for entry in entries) >= ran[one]
        elif action == "c" and state.exists():
            put_back(state, "state")
        elif action == "p" and Path("state").exists() and not Path("out").exists():
            put_back("state", state)
        elif action == "b":
            put_back("results", "before")
        elif action == "r" and Path("before").exists():
            put_back("before", "results")
        elif action == "l":
            for counter in Path().glob(f"{random.choice(['', 'results/tiny/'])}.*begun-*"):
                counter.unlink()
        elif action == "m" and Path("out").exists():
            Path(f"elsewhere-{number}").mkdir()
            Path("out").rename(f"elsewhere-{number}/out")


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


def ended_after_folders_were_put_back(prepared, kill_at, first, folders):
    """Kill a release at a step, and twice more, put back what its folders then held and end it; return the card and the steps begun."""
    taken = 0
    for step in (first, 13, 13):
        begun = kill_at(step)
        with pytest.raises(Killed):
            released(prepared)
        taken += begun()
        if step == first:
            for folder in folders:
                shutil.copytree(folder, f"{folder}.older")
    for folder in folders:
        shutil.rmtree(folder)
        Path(f"{folder}.older").rename(folder)
    begun = kill_at(0)
    card = released(prepared)
    return card, taken + begun()


def test_what_ran_before_older_results_were_put_back_is_charged(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 50}, training={"epochs": 4, "batch": 10})
    _, taken = ended_after_folders_were_put_back(prepared, kill_at, 6, ["results"])
    assert charged_steps() >= taken


def test_what_ran_before_state_and_results_were_put_back_together_is_charged(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 90}, training={"epochs": 4, "batch": 10})
    card, taken = ended_after_folders_were_put_back(prepared, kill_at, 8, ["results", ".out.unfinished"])
    assert charged_steps() >= taken
    assert sum(terms["steps"] for terms in card["privacy"]["charged"]) == charged_steps()


def test_what_ran_after_folders_were_copied_is_charged_again_if_they_are_put_back_when_it_is_done(
    recipe, kill_at, monkeypatch
):
    """Nothing was killed, so the ledger was charged for no more than the copied state knows."""
    prepared = recipe(privacy=LEDGER | {"epsilon": 50}, training={"epochs": 4, "batch": 10})
    begin, folders = KeptEpochs.begin, ("results", ".out.unfinished")

    def copied(self):
        if self.epochs == 1 and not Path("results.older").exists():
            for folder in folders:
                shutil.copytree(folder, f"{folder}.older")
        begin(self)

    monkeypatch.setattr(KeptEpochs, "begin", copied)
    begun = kill_at(0)
    released(prepared)
    Path("out").rename("sent")
    shutil.rmtree("results")
    for folder in folders:
        Path(f"{folder}.older").rename(folder)
    card = released(prepared)
    assert charged_steps() >= begun() > 28
    assert sum(terms["steps"] for terms in card["privacy"]["charged"]) == charged_steps()


@pytest.mark.parametrize("kept", ["card", "results"])
def test_a_state_put_back_with_its_counts_is_charged_whole_where_a_card_or_results_tell(
    recipe, kill_at, monkeypatch, kept
):
    """Copies of an hour ago agree with one another on how many epochs were begun."""
    prepared = recipe(privacy=LEDGER | {"epsilon": 50}, training={"epochs": 4, "batch": 10})
    begin = KeptEpochs.begin

    def copied(self):
        if self.epochs == 2 and not Path("older").exists():
            shutil.copytree(".", "older", ignore=shutil.ignore_patterns("older"))
        begin(self)

    monkeypatch.setattr(KeptEpochs, "begin", copied)
    begun = kill_at(0)
    released(prepared)
    Path("out").rename("sent")
    put_back = [path for path in Path("older").iterdir() if path.name.startswith(".")]
    if kept == "card":
        put_back += [Path("older", "results"), Path("older", "rows.ledger")]
        shutil.rmtree("results")
    else:
        shutil.move("sent", "elsewhere/sent")
    for path in put_back:
        path.rename(path.name)
    card = released(prepared)
    assert charged_steps() >= begun() > 28
    assert sum(terms["steps"] for terms in card["privacy"]["charged"]) == charged_steps()


@pytest.mark.parametrize("first", ["a-sent", "sent"])
def test_of_two_cards_of_a_release_that_with_more_charges_counts(recipe, kill_at, first):
    kill_at(9)
    with pytest.raises(Killed):
        released(recipe())
    shutil.copytree(".out.unfinished", "older")
    kill_at(0)
    released(recipe())
    Path("out").rename(first)
    Path("older").rename(".out.unfinished")
    card = released(recipe())
    shutil.rmtree("results")
    released(recipe(privacy=LEDGER | {"epsilon": 200}), "third")
    own = [one.terms for one in read_ledger(Path("rows.ledger"))[1] if one.released["id"] == card["id"]]
    assert own == card["privacy"]["charged"] and len(own) > 2


def test_files_beside_a_release_that_are_no_cards_of_ours_are_passed_over(recipe):
    """A reader of a FIFO would wait, with the lock of all charges held."""
    prepared = recipe(privacy=LEDGER | {"epsilon": 50})
    stated = json.dumps(released(prepared, "first"))
    unpaid = json.dumps(json.loads(stated) | {"ledger": None})
    odd = {
        "infinite": stated.replace('"entries": 1', '"entries": Infinity'),
        "huge": unpaid.replace('"steps": 14', f'"steps": 1{"0" * 400}'),
        "none": "[]",
    }
    assert all(text not in (stated, unpaid) for text in odd.values())
    for name, text in odd.items():
        Path(name).mkdir()
        Path(name, "card.json").write_text(text)
    Path("waits").mkdir()
    os.mkfifo("waits/card.json")
    released(prepared, "second")
    assert len(read_ledger(Path("rows.ledger"))[1]) == 2


def test_a_release_is_not_resumed_on_an_array_whose_digest_no_table_has(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 50})
    path = prepared.pool / "records.parquet"
    table, known = read_table(path, "records"), table_metadata(path, "records")
    known.pop(ARRAY)
    write_table(path, table, "records", len(table), known)
    kill_at(9)
    with pytest.raises(Killed):
        released(prepared)
    array = prepared.pool / "records.npy"
    np.save(array, np.load(array) + 1)
    kill_at(0)
    with pytest.raises(UserError, match="an unfinished release of another setting, config or audit, of other records"):
        released(prepared)


def test_names_are_written_out_in_a_card_and_one_that_is_too_long_is_refused_before_a_charge(recipe):
    prepared = recipe(privacy=LEDGER | {"epsilon": 50})
    refused_name = "x" * 201
    with pytest.raises(UserError, match="a name of more than 200 bytes"):
        released(prepared, refused_name)
    with pytest.raises(UserError, match="a name of more than 200 bytes"):
        released(recipe(privacy=LEDGER | {"ledger": refused_name}))
    assert not Path(refused_name).exists()
    assert not Path("rows.ledger").exists()
    release(prepared, "0" * 64, Path("out"), Compute(), to="<b>\x1b[31m\u202e|you</b>")
    page = Path("out", "card.md").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page and "\x1b" not in page and "\u202e" not in page and r"\|you" in page


def test_a_card_states_what_was_charged_without_a_ledger_before_an_older_state_was_put_back(recipe, kill_at):
    prepared = recipe(training={"epochs": 4, "batch": 10})
    kill_at(1)
    with pytest.raises(Killed):
        released(prepared)
    shutil.copytree(".out.unfinished", "older")
    card, taken = ended_from_an_older_state(prepared, kill_at)
    charged = [one.terms for one in prepared.earlier() if one.released["id"] == card["id"]]
    assert card["privacy"]["charged"] == charged
    assert sum(terms["steps"] for terms in charged) >= 1 + taken


def test_every_file_of_a_release_is_listed_and_verified(recipe, monkeypatch, capsys):
    """Programs of others name their files as they like, and know nothing of digests in them."""
    own = {"logs/w.bin": b"1", ".hidden": b"2", "seed-1/a.npy": b"3", "table.parquet": b"4"}
    train = releasing.open_learner

    def with_files(*given):
        described, learner = train(*given)
        call = learner.train

        def trained(task):
            model = call(task)
            save = model.save

            def saved(folder):
                save(folder)
                for name, content in own.items():
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).write_bytes(content)

            monkeypatch.setattr(model, "save", saved, raising=False)
            return model

        monkeypatch.setattr(learner, "train", trained, raising=False)
        return described, learner

    monkeypatch.setattr(releasing, "open_learner", with_files)
    released(recipe())
    assert main(["verify", "out"]) == 0
    for name in own:
        Path("out", name).write_bytes(b"x")
        assert main(["verify", "out"]) == 2
        assert name in capsys.readouterr().err
        Path("out", name).write_bytes(own[name])


def test_a_card_without_a_ledger_says_that_others_were_charged_to_one_meanwhile(recipe, monkeypatch):
    other, train = recipe(privacy=LEDGER | {"epsilon": 50}), releasing.write_release

    def written(prepared, *given, **more):
        if prepared is first:
            released(other, "second")
        return train(prepared, *given, **more)

    monkeypatch.setattr(releasing, "write_release", written)
    first = recipe()
    card = released(first, "first")
    header, entries, _ = read_ledger(Path("rows.ledger"))
    assert header.id in card["assumptions"][-1] and "Nothing else" not in card["assumptions"][-1]
    assert card["id"] in {one.released["id"] for one in entries}


@pytest.mark.parametrize("version", ["mia-audit", "opacus", None])
def test_a_state_from_elsewhere_is_refused_before_a_charge(recipe, kill_at, monkeypatch, version):
    """A state of another version may lack what this one needs; a copy would be charged as if the original did not go on."""
    prepared, out = recipe(privacy=LEDGER | {"epsilon": 50}), "refused" if version else "out"
    kill_at(9)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        if version:
            patched.setattr(
                "mia_audit.releasing.recipe.version", lambda name: "0.1" if name == version else installed(name)
            )
        released(prepared, out)
    if not version:
        shutil.copytree(".out.unfinished", ".refused.unfinished")
    kill_at(0)
    refused(prepared, "a copy from another place, or begun by another version of mia-audit")


def test_a_folder_that_appears_while_a_model_is_trained_is_kept(recipe, monkeypatch):
    prepared = recipe(privacy=LEDGER | {"epsilon": 50})
    train = releasing.open_learner

    def meanwhile(*given):
        Path("out").mkdir()
        Path("out", "mine").touch()
        return train(*given)

    with monkeypatch.context() as patched:
        patched.setattr(releasing, "open_learner", meanwhile)
        with pytest.raises(UserError, match="out: was created while the model was trained"):
            released(prepared)
    assert Path("out", "mine").exists()
    Path("out").rename("mine")
    released(prepared)
    assert charged_steps() == 14  # the training was over


def test_a_release_is_not_resumed_on_records_that_changed(recipe, kill_at):
    """Fewer records have another sampling rate and another noise than what was charged, and the card would state only one of both."""
    prepared = recipe(privacy=LEDGER | {"epsilon": 50})
    kill_at(9)
    with pytest.raises(Killed):
        released(prepared)
    section = PoolSpec.from_audit(prepared.audit, "rows").dataset
    source = load_source(section, "datasets.rows")
    fewer = replace(source, records=source.records[:30], labels=source.labels[:30])
    write_pool(build_pool(fewer, section, "rows", 0), prepared.pool)
    with pytest.raises(UserError, match="audit, of other records"):
        released(replace(prepared))
    assert charged_steps() == 14


def test_results_remember_a_charge_before_another_process_can_make_one(recipe, monkeypatch):
    def written(path, values):
        with pytest.raises(UserError, match="another process uses this ledger"):
            add(Path("rows.ledger"), [], patience=0)
        write_json(path, values)

    monkeypatch.setattr(charging, "write_json", written)
    released(recipe(privacy=LEDGER))
