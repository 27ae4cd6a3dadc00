"""The commands: a release from a config file, and the ledger as people see it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mia_audit.cli import main
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.privacy.ledger import Ledger, read_ledger

from .conftest import config

SETTING = "rows/mlp/dp-sgd-eps4"


@pytest.fixture
def written(audited):
    """Write the audit's config to a file beside its results."""

    def write(**changes):
        audited(**changes)
        Path("config.yaml").write_text(yaml.safe_dump(config(**changes)))

    return write


def ran(capsys, *arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def test_a_release_verifies_and_its_ledger_is_shown(written, capsys):
    rdp = {"dp-sgd": {"epsilon": [4], "accountant": "rdp"}}
    written(mechanisms=rdp, privacy={"ledger": "{dataset}.ledger", "epsilon": 20})
    arguments = ("config.yaml", "--setting", SETTING, "--out", "out", "--to", "the clinic")
    told = ran(capsys, "release", *arguments)
    assert f"{SETTING}: ε = 3.9" in told or f"{SETTING}: ε = 4 " in told
    assert "root hash" in ran(capsys, "verify", "out")
    assert "exists already" in ran(capsys, "release", *arguments, code=2)
    shown = ran(capsys, "ledger", "show", "rows.ledger")
    assert "the clinic" in shown and "total per record" in shown
    before = json.loads(ran(capsys, "ledger", "show", "rows.ledger", "--json"))
    assert before["entries"][0]["to"] == "the clinic"
    common = ("ledger", "add", "rows.ledger", "--unit", "record", "--adjacency", "add-remove")
    assert "entry 1; total per record" in ran(capsys, *common, "--rho", "0.01", "--what", "histogram")
    after = json.loads(ran(capsys, "ledger", "show", "rows.ledger", "--json"))
    assert after["total"]["epsilon"] > before["total"]["epsilon"]
    assert after["entries"][1]["terms"] == {"kind": "zcdp", "rho": 0.01}
    for added, match in (
        ((), "exactly one of"),
        (("--rho", "1", "--mu", "1"), "exactly one of"),
        (("--mu", "nan"), "a positive number"),
        (("--mu", "1", "--delta", "0.1"), "is used only with --epsilon"),
        (("--mu", "1", "--steps", "2"), "are used only with --noise-multiplier"),
        (("--noise-multiplier", "1", "--sampling-rate", "2"), "sampling_rate 2"),
        (("--mu", "9"), "overdrawn"),
    ):
        message = ran(capsys, *common, *added, code=2)
        assert match in message and message.count("\n") == 1
    assert "missing" in ran(capsys, "ledger", "add", "rows.ledger", "--mu", "1", code=2)
    assert json.loads(ran(capsys, "ledger", "show", "rows.ledger", "--json")) == after
    printed = ran(capsys, "ledger", "show", "rows.ledger").partition("total per record: ε = ")[2].split()[0]
    assert float(printed) >= after["total"]["epsilon"]


@pytest.mark.parametrize("multiplier", [0.9, 1.0, 1.4, 1.6])
def test_no_printed_epsilon_is_below_the_computed_one(capsys, multiplier):
    terms = ("--batch", 100, "--records", 100, "--epochs", 3, "--delta", 1e-5)
    row = ran(capsys, "epsilon", "--noise-multiplier", multiplier, "--accountant", "pld", *terms).split()[-3:]
    assert epsilon_spent(multiplier, 1.0, 3, 1e-5, "pld") <= float(row[-1])
    target = ran(capsys, "epsilon", "--target-epsilon", multiplier, "--accountant", "pld", *terms).split()[-3:]
    assert epsilon_spent(float(target[1]), 1.0, 3, 1e-5, "pld") <= multiplier


def test_an_audit_keeps_its_ledger_wherever_a_release_is_started(written, capsys, monkeypatch, tmp_path):
    written(privacy={"ledger": "{dataset}.ledger"})
    main(["release", "config.yaml", "--setting", SETTING, "--out", "first"])
    assert "rows.ledger: a new ledger" in capsys.readouterr().err
    home = Path.cwd()
    (tmp_path / "elsewhere").mkdir()
    shutil.copy("config.yaml", tmp_path / "elsewhere")
    shutil.copytree("data", tmp_path / "elsewhere" / "data")
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = ("release", "config.yaml", "--results", home / "results" / "tiny", "--setting", SETTING)
    message = ran(capsys, *command, "--out", "second", code=2)
    assert "privacy.ledger: rows.ledger: no such" in message and "were charged" in message
    assert {path.name for path in Path.cwd().iterdir()} == {"config.yaml", "data"}
    header = read_ledger(home / "rows.ledger")[0]
    Ledger(Path("rows.ledger"), replace(header, id="")).close()
    message = ran(capsys, *command, "--out", "second", code=2)
    assert f"charged to {header.id}; expected that one" in message
    assert not Path("second").exists() and not read_ledger(Path("rows.ledger"))[1]
    Path("rows.ledger").write_bytes((home / "rows.ledger").read_bytes())
    assert f"{SETTING}: ε = " in ran(capsys, *command, "--out", "second")


@pytest.mark.parametrize(
    ("privacy", "match"),
    [
        ({"epsilon": 3}, "epsilon: requires a ledger"),
        ({"ledger": "{data}.ledger"}, "{dataset} is the only placeholder"),
        ({"ledger": "a", "planned": ["rows/mlp/dp-sgd-eps5"]}, "unknown setting 'rows/mlp/dp-sgd-eps5': did you mean"),
        ({"ledger": "a", "planned": [SETTING], "filter": "gdp"}, "not used when planned lists all releases"),
    ],
)
def test_mistakes_in_the_section_are_one_line(tmp_path, monkeypatch, capsys, privacy, match):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("config.yaml").write_text(yaml.safe_dump(config(privacy=privacy)))
    message = ran(capsys, "release", "config.yaml", "--setting", SETTING, "--out", "out", code=2)
    assert match in message and message.count("\n") == 1


def test_several_data_sets_need_a_ledger_each(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    changed = config(privacy={"ledger": "one.ledger"})
    changed["datasets"]["more"] = changed["datasets"]["rows"]
    Path("config.yaml").write_text(yaml.safe_dump(changed))
    message = ran(capsys, "release", "config.yaml", "--setting", SETTING, "--out", "out", code=2)
    assert "a ledger belongs to one data set" in message
