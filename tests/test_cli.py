"""The command line: help is quick and complete, a user's mistake is one line and exit code 2."""

import argparse
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest

from mia_audit.cli import COMMANDS, MODULES, function_of, main
from mia_audit.errors import UserError


def test_every_command_has_its_functions_and_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(COMMANDS) == sorted(command for commands in MODULES.values() for command in commands)
    for command in COMMANDS:
        assert callable(function_of(command, "run_{}")) and callable(function_of(command, "{}_arguments"))
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"mia-audit {version('mia-audit')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_its_arguments(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "--" in shown and "?." not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_with_several_values_may_be_given_several_times(command: str) -> None:
    parser = argparse.ArgumentParser()
    function_of(command, "{}_arguments")(parser)
    many = [one for one in parser._actions if one.nargs in ("+", "*") and one.option_strings]
    assert all(isinstance(one, argparse._ExtendAction) for one in many), [one.option_strings for one in many]
    assert all(not one.default for one in many), "values of the command line would follow the default"


def test_help_imports_nothing_heavy() -> None:
    heavy = {"numpy", "torch", "pyarrow", "pydantic"}
    code = (
        "import sys; from mia_audit.cli import main\n"
        f"try: main(['--help'])\nexcept SystemExit: print(sorted({heavy} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")


def test_a_user_error_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "spec.json").write_text('{"seed": 0, "dataset": "digits", "membership": {}}')
    spec = ["--spec", str(tmp_path / "spec.json")]
    assert main(["membership", "--records", str(tmp_path / "none.parquet"), *spec, "--out", "x"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mia-audit: ")
    assert error.count("\n") == 1
    assert "none.parquet: no such file" in error


PATH = "no such file: " + "/".join(["a folder's name"] * 20)


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        (f"key: got '{'x y' * 9_000}': expected a number", f"key: got '{('x y' * 27)[:80]}…': expected a number"),
        (f"unknown key {'x' * 9_000}: known: a", f"unknown key {'x' * 80}…: known: a"),
        ("a model's name, " * 20, "a model's name, " * 20),
        (PATH, PATH),
        ("a/b " * 9_000, ("a/b " * 2_500) + "…"),
    ],
    ids=["quoted", "word", "prose", "path", "long"],
)
def test_a_message_quotes_no_more_of_a_file_than_can_be_read(
    message: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mia_audit.commands.before.load_audit", Mock(side_effect=UserError(message)))
    assert main(["plan", "mine.yaml"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"mia-audit: {printed}"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["trian"])
    assert "invalid choice: 'trian'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["a.yaml", "--cores", "1", "--", "-n", "--quiet"],
        ["--cores", "1", "a.yaml", "--", "-n", "--quiet"],
        ["a.yaml", "--", "--cores", "1", "-n", "--quiet"],
        ["-n", "--cores", "1", "a.yaml", "--", "--quiet"],
        ["a.yaml", "--cores", "1", "-n", "--", "--quiet"],
    ],
)
def test_options_of_snakemake_follow_in_every_order(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def start(config: Path, cores: str | None, options: list[str]) -> int:
        asked.extend([str(config), *(["--cores", cores] if cores else []), *options])
        return 0

    monkeypatch.setattr("mia_audit.commands.before.start", start)
    assert main(["run", *words]) == 0
    known = {"-n": "--dry-run"}
    assert sorted(known.get(word, word) for word in asked) == sorted(["a.yaml", "--cores", "1", "--dry-run", "--quiet"])


def test_an_interrupt_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("mia_audit.commands.before.load_audit", Mock(side_effect=KeyboardInterrupt))
    assert main(["plan", "a.yaml"]) == 130
    assert capsys.readouterr().err == "mia-audit: interrupted\n"
