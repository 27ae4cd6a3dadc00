"""A release: what is in its folder, what it is charged for, and what cannot be released."""

import fcntl
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from torch.optim import AdamW

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute
from mia_audit.privacy import accounting
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.privacy.book_keeping.rules import NotCovered
from mia_audit.privacy.ledger import RESTART, read_ledger
from mia_audit.releasing import recipe as recipe_module
from mia_audit.releasing import release as releasing
from mia_audit.releasing.card import delta_of, spent
from mia_audit.releasing.charging import MODEL
from mia_audit.releasing.release import release
from mia_audit.storage.digests import differences
from mia_audit.training import shadow
from mia_audit.training.shadow import start

from ..killing import Killed, killed
from .conftest import ROWS

LEDGER = {"ledger": "rows.ledger", "epsilon": 12}
SETTING = "rows/mlp/dp-sgd-eps4"


def made(recipe, out="out", **options):
    card = release(recipe, "0" * 64, Path(out), Compute(), **options)
    assert not list(Path().glob(".*.unfinished"))
    assert json.loads((Path(out) / "card.json").read_text()) == json.loads(json.dumps(card))
    assert list(differences(Path(out))) == []
    return card


def test_a_release_says_what_it_promises_and_was_charged_for_it(recipe):
    card = made(recipe(privacy=LEDGER), to="the clinic")
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "SHA256SUMS",
        "card.json",
        "card.md",
        "weights.safetensors",
    ]
    privacy = card["privacy"]
    assert privacy["sampling_rate"] == 10 / 70  # the whole pool
    assert privacy["steps"] == 14
    assert privacy["epsilon"] == epsilon_spent(privacy["noise_multiplier"], 10 / 70, 14, 1e-5, "pld")
    assert 3.99 < privacy["epsilon"] <= 4
    header, (entry,), head = read_ledger(Path("rows.ledger"))
    assert (entry.what, entry.released["id"], entry.released["to"]) == (MODEL, card["id"], "the clinic")
    assert privacy["charged"] == [entry.terms]
    assert (card["ledger"]["id"], card["ledger"]["head"], card["ledger"]["entries"]) == (header.id, head, 1)
    assert privacy["epsilon"] < card["ledger"]["epsilon"] < 12
    page = Path("out", "card.md").read_text()
    assert "the guarantee of all together is the budget, ε = 12." in page
    printed = [float(one) for one in re.findall(r"ε = ([\d.]+) at δ = 1e-05 per record", page)]
    for stated, exact in zip(printed, (privacy["epsilon"], card["ledger"]["epsilon"]), strict=True):
        assert exact <= stated <= 1.001 * exact
    with safe_open(Path("out", "weights.safetensors"), framework="np") as file:
        assert "audit only" not in str(file.metadata())
    again = made(recipe(privacy=LEDGER), "again")
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == [MODEL, "re-training"]
    assert again["id"] != card["id"]
    assert again["audit"] == card["audit"]


NONCES = re.compile(r'"(?:id|head)": "[0-9a-f]+"|[0-9a-f]{32}')


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        (SETTING, {"privacy": LEDGER}),
        ("rows/mlp/none-epsinf", {}),
    ],
)
def test_nothing_but_weights_depends_on_the_records(recipe, capsys, setting, changes):
    texts, prints = [], []
    for where, swapped in (("one", False), ("other", True)):
        prepared = recipe(setting, where, swapped, **changes)
        capsys.readouterr()
        made(prepared)
        texts.append({name: Path("out", name).read_text() for name in ("card.json", "card.md")})
        prints.append(capsys.readouterr())
    for name in texts[0]:
        one, other = (NONCES.sub("-", text[name]) for text in texts)
        assert one == other
    assert prints[0] == prints[1]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "SHA256SUMS",
        "card.json",
        "card.md",
        "weights.safetensors",
    ]


def charged_steps(path="rows.ledger"):
    return sum(one.terms["steps"] for one in read_ledger(Path(path))[1])


@pytest.mark.parametrize("steps", [[9, 7, 1], *(pytest.param([one], marks=pytest.mark.slow) for one in range(1, 15))])
def test_a_release_that_is_killed_and_resumed_spends_what_its_ledger_says(recipe, kill_at, steps):
    prepared = recipe(privacy=LEDGER)
    taken = 0
    for step in steps:
        begun = kill_at(step)
        with pytest.raises(Killed):
            release(prepared, "0" * 64, Path("out"), Compute())
        taken += begun()
        assert not Path("out").exists()
        assert charged_steps() >= taken
    begun = kill_at(0)
    card = made(prepared)
    taken += begun()
    assert charged_steps() == 14 + 7 * len(steps) >= taken
    assert {one.what for one in read_ledger(Path("rows.ledger"))[1]} == {MODEL, RESTART}
    assert {one.released["id"] for one in read_ledger(Path("rows.ledger"))[1]} == {card["id"]}
    privacy = card["privacy"]
    assert privacy["epsilon"] == epsilon_spent(privacy["noise_multiplier"], 10 / 70, charged_steps(), 1e-5, "pld")


def test_a_release_without_its_state_is_charged_whole_again(recipe, kill_at):
    prepared = recipe(privacy=LEDGER | {"epsilon": 20})
    kill_at(9)
    with pytest.raises(Killed):
        release(prepared, "0" * 64, Path("out"), Compute())
    Path(".out.unfinished", "epoch.safetensors").unlink()
    made(prepared)
    assert charged_steps() == 28


@pytest.mark.parametrize("plan", [{}, pytest.param({"planned": [SETTING]}, marks=pytest.mark.slow)])
def test_a_kill_between_charge_and_work_charges_again(recipe, monkeypatch, plan):
    prepared = recipe(privacy=LEDGER | plan)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(releasing.Unfinished, "begin", killed)
        release(prepared, "0" * 64, Path("out"), Compute())
    card = made(prepared)
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == [MODEL, RESTART]
    assert card["privacy"]["steps"] == 14 < charged_steps() == 28
    if not plan:
        return
    assert card["ledger"]["composed_by"].startswith("the privacy loss distribution")
    with pytest.raises(UserError, match="is not among the remaining entries"):
        release(prepared, "0" * 64, Path("second"), Compute())
    assert not Path("second").exists()


def test_an_overdraft_is_refused_before_anything_is_computed(recipe, monkeypatch):
    monkeypatch.setattr(releasing, "open_learner", lambda *_: pytest.fail("it began"))
    with pytest.raises(UserError, match="the budget would be overdrawn"):
        release(recipe(privacy=LEDGER | {"epsilon": 2}), "0" * 64, Path("out"), Compute())
    assert not Path("rows.ledger").exists()
    assert not Path(".out.unfinished").exists()
    with pytest.raises(UserError, match="overdrawn"):
        release(recipe("rows/mlp/none-epsinf", privacy=LEDGER), "0" * 64, Path("none"), Compute())


@pytest.mark.parametrize("check", ["privacy.per_record.check_kinds", "models.architecture.changing_state"])
def test_a_model_that_cannot_be_trained_as_stated_is_refused_before_it_is_charged(recipe, monkeypatch, check):
    def refuse(*_):
        raise NotCovered("a kind of its own")

    monkeypatch.setattr(f"mia_audit.{check}", refuse if "kinds" in check else lambda *_: "0.running_mean")
    stated = recipe(training={"epochs": 2, "batch": 10, "per_record": "book-keeping"})
    with pytest.raises(UserError, match=r"does not cover this model|cannot be trained privately"):
        release(stated, "0" * 64, Path("out"), Compute())
    assert not list(Path().glob("**/*ledger*")) and not Path(".out.unfinished").exists()


REFUSING = """
from mia_audit.errors import UserError
from mia_audit.privacy.catalogue import mechanism
from mia_audit.privacy.mechanisms import DPSGD, Noise

@mechanism(options=(Noise,))
class Mine(DPSGD):
    def __init__(self, section, job):
        raise UserError("a model of another kind is needed")
"""


@pytest.mark.parametrize(
    ("mechanism", "trainable", "match"),
    [
        ({"mechanism": "fadp"}, "all", "but this model has neither"),
        ({"mechanism": "fadp", "importance": "past"}, "head", "which the classifier has not"),
        ({"mechanism": "mine.py:Mine"}, "all", "a model of another kind"),
        ({"mechanism": "dp-sgd", "training": {"precision": "bf16"}}, "all", "bf16: not for a private release"),
    ],
)
def test_a_mechanism_that_does_not_fit_the_model_is_never_charged(recipe, tmp_path, mechanism, trainable, match):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(REFUSING)
    training = {"epochs": 2, "batch": 10, "trainable": trainable}
    prepared = recipe(
        "rows/mlp/m-eps4", privacy=LEDGER, training=training, mechanisms={"m": mechanism | {"epsilon": [4]}}
    )
    for _ in range(2):
        with pytest.raises(UserError, match=match):
            release(prepared, "0" * 64, Path("out"), Compute())
        assert not list(Path().glob("**/*ledger*")) and not Path(".out.unfinished").exists()


def test_an_unprotected_release_says_so(recipe):
    card = made(recipe("rows/mlp/none-epsinf", privacy={"ledger": "rows.ledger"}))
    assert (card["guarantee"], card["privacy"]["epsilon"], card["ledger"]["epsilon"]) == ("none", None, None)
    assert card["training"]["epochs"] == 2 and "per_record" not in card["training"]
    assert "trained without differential privacy" in Path("out", "card.md").read_text()


def test_persons_are_the_unit_of_all_that_is_released(recipe):
    rows = ROWS | {"person": "persons"}
    card = made(recipe(datasets={"rows": rows}, privacy=LEDGER))
    assert (card["privacy"]["unit"], card["data"]["unit"], card["data"]["units"]) == ("person", "person", 30)
    assert card["privacy"]["sampling_rate"] == 10 / 30
    assert read_ledger(Path("rows.ledger"))[0].unit == "person"
    plain = made(
        recipe("rows/mlp/none-epsinf", datasets={"rows": rows}, privacy={"ledger": ""}, where="other"), "plain"
    )
    assert (plain["privacy"]["unit"], plain["data"]["units"]) == ("person", 30)
    assert "number of persons (30)" in " ".join(plain["assumptions"])
    records = {"dp-sgd": {"epsilon": [4], "unit": "record"}}
    with pytest.raises(UserError, match="more privacy than one record's ε allows"):
        recipe(datasets={"rows": rows}, mechanisms=records)
    with pytest.raises(UserError, match=r"datasets\.rows\.unit: record, but mechanisms\.dp-sgd\.unit is person"):
        recipe(datasets={"rows": rows | {"unit": "record"}}, mechanisms={"dp-sgd": {"epsilon": [4], "unit": "person"}})


MECHANISM = """
from mia_audit.privacy.catalogue import Unit, mechanism
from mia_audit.privacy.mechanisms import DPSGD, Noise

@mechanism(options=(Noise, Unit))
class Mine(DPSGD):
    def __init__(self, section, job):
        super().__init__(section, job)
        self.steps_per_epoch += {more}
"""


@pytest.mark.parametrize("more", [0, 1])
def test_a_mechanism_of_the_users_own_is_not_said_to_be_verified(recipe, tmp_path, more):
    (tmp_path / "mine.py").write_text(MECHANISM.format(more=more))
    mine = {"mine": {"mechanism": f"{tmp_path}/mine.py:Mine", "epsilon": [4]}}
    prepared = recipe("rows/mlp/mine-eps4", mechanisms=mine)
    if more:  # it takes more steps than it foresaw
        with pytest.raises(RuntimeError, match=r", 16\), but charged for .*, 14\)"):
            made(prepared)
        assert not Path("out").exists()
        return
    card = made(prepared)
    assert card["privacy"]["noise"] == "added by the user's own mechanism"
    assert [one for one in card["assumptions"] if "own mechanism" in one and "None of this was verified" in one]


SCRIPT = """
import numpy as np
from sklearn.linear_model import LogisticRegression

def train(task):
    assert task.seed is None and task.key is None
    assert task.epsilon == 2 and task.delta == 1e-5
    print(np.random.random())
    return LogisticRegression().fit(task.records[task.members], task.labels[task.members])
"""


def test_a_script_gets_no_seed_and_its_guarantee_is_claimed(recipe, tmp_path, capfd):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(SCRIPT)
    own = {
        "architectures": {"mine": {"model": "mine.py"}},
        "mechanisms": {"own": {"epsilon": [2]}},
        "explainers": {"methods": []},
    }
    with pytest.raises(UserError, match="add up to 1e-05, but a filter has 5e-06 for them"):
        made(recipe("rows/mine/own-eps2", privacy=LEDGER, **own))
    wide = LEDGER | {"delta": 1e-4}
    card = made(recipe("rows/mine/own-eps2", privacy=wide, **own))
    made(recipe("rows/mine/own-eps2", privacy=wide, **own), "again")
    assert (card["guarantee"], card["training"]) == ("claimed", None)
    assert "nothing here verified the claim" in Path("out", "card.md").read_text()
    assert [one.terms["kind"] for one in read_ledger(Path("rows.ledger"))[1]] == ["epsilon-delta"] * 2
    drawn = re.findall(r"^0\.\d+$", capfd.readouterr().out + capfd.readouterr().err, re.MULTILINE)
    assert len(drawn) == len(set(drawn))


def test_a_script_that_is_killed_is_charged_whole_again(recipe, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(SCRIPT)
    own = {
        "architectures": {"mine": {"model": "mine.py"}},
        "mechanisms": {"own": {"epsilon": [2]}},
        "explainers": {"methods": []},
    }
    prepared = recipe("rows/mine/own-eps2", privacy=LEDGER | {"delta": 1e-4}, **own)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(releasing, "write_release", killed)
        release(prepared, "0" * 64, Path("out"), Compute())
    card = made(prepared)
    assert card["guarantee"] == "claimed"
    assert card["privacy"]["delta"] == 2e-5 and card["privacy"]["epsilon"] == pytest.approx(4)
    assert [one.what for one in read_ledger(Path("rows.ledger"))[1]] == [MODEL, RESTART]


@pytest.mark.parametrize(
    ("charges", "delta"),
    [
        ([accounting.Stated(4, 1e-5)], 1e-5),
        ([accounting.Stated(4, 0)] * 2, 1e-5),
        ([accounting.Stated(4, 1e-5)] * 2, 2e-5),
        ([accounting.Gaussian(3.73), accounting.Stated(4, 1e-5)], 2e-5),
        ([accounting.Gaussian(3.73)] * 2, 1e-5),
    ],
)
def test_several_charges_have_a_finite_epsilon_at_a_delta_that_they_fit_in(charges, delta):
    assert delta_of(charges, 1e-5) == delta
    epsilon, _ = spent(charges, delta, "pld")
    assert 0 < epsilon <= sum(getattr(one, "epsilon", 4) for one in charges) + 1e-6


def test_what_cannot_be_released_is_one_line(recipe, audited):
    literal = {"fadp-literal": {"epsilon": [4], "acknowledge_no_guarantee": True}}
    for setting, changes, match in (
        ("rows/mlp/dp-sgd-eps5", {}, "no trained setting of tiny: did you mean 'rows/mlp/dp-sgd-eps4'"),
        ("rows/mlp/fadp-literal-eps4", {"mechanisms": literal}, "it is not released|guarantees nothing"),
    ):
        with pytest.raises(UserError, match=match) as caught:
            recipe(setting, **changes)
        assert "\n" not in str(caught.value)
    Path("out").mkdir()
    Path("file").touch()
    for out, match in (("out", "exists already"), ("file/out", "file/out: cannot be written: not a directory; choose")):
        with pytest.raises(UserError, match=match):
            release(recipe(), "0" * 64, Path(out), Compute())


def test_an_unfinished_release_is_not_gone_on_with_as_another(recipe, kill_at):
    kill_at(3)
    with pytest.raises(Killed):
        release(recipe(), "0" * 64, Path("out"), Compute())
    for other, to in ((recipe(training={"epochs": 3, "batch": 10}), "anybody"), (recipe(), "somebody else")):
        with pytest.raises(UserError, match="an unfinished release of another setting, config or audit"):
            release(other, "0" * 64, Path("out"), Compute(), to)
    Path(".out.unfinished", "release.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        release(other, "0" * 64, Path("out"), Compute())


@pytest.mark.parametrize("again", [False, True])
def test_the_lock_of_a_release_that_has_just_ended_is_none(tmp_path, monkeypatch, again):
    """Between opening the lock and taking it, its folder is removed, and a third process may begin anew."""
    folder, out = tmp_path / ".model.unfinished", tmp_path / "model"

    def late(lock, how):
        shutil.rmtree(folder)
        if again:
            folder.mkdir()
            (folder / "lock").touch()
        fcntl.flock(lock, how)

    monkeypatch.setattr(recipe_module, "fcntl", SimpleNamespace(**(vars(fcntl) | {"flock": late})))
    with pytest.raises(UserError, match="another process is working"), recipe_module.unfinished(out, {}):
        pass


def test_a_released_model_is_trained_on_the_schedule_of_the_audit(recipe, monkeypatch):
    kept, step = [], AdamW.step
    monkeypatch.setattr(AdamW, "step", lambda self: (kept.append(bool(self.state)), step(self))[1])
    made(recipe(training={"epochs": 4, "batch": 10, "schedule": "step-reset", "decay_epochs": 2}))
    assert [number for number, moments in enumerate(kept) if not moments] == [0, 14]


def test_a_resumed_release_keeps_the_layers_that_are_not_trained(recipe, kill_at, monkeypatch):
    drawn = []

    def noted(recipe, seed):
        drawn.append(start(recipe, seed))
        return drawn[-1]

    monkeypatch.setattr(shadow, "start", noted)
    prepared = recipe(training={"epochs": 2, "batch": 10, "trainable": "head"})
    kill_at(9)
    with pytest.raises(Killed):
        made(prepared)
    kill_at(0)
    made(prepared)
    frozen = [[value for value in model.parameters() if not value.requires_grad] for model in drawn]
    assert len(frozen) == 2 and frozen[0] and all(map(torch.equal, *frozen))
