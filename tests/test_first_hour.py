"""docs/start/first_hour.md is walked as it stands there, in a fresh folder: its commands say what the page says that they do."""

import contextlib
import io
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mia_audit.cli import main

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "start" / "first_hour.md"
BLOCK = re.compile(r'```(console|yaml title="(?P<file>[^"]+)")\n(?P<text>.*?)```', re.DOTALL)


def steps() -> Iterator[tuple[str, str, str]]:
    """Yield a file to be written with its text, or a command with its output, in the order of the page."""
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["file"]:
            yield "file", block["file"], block["text"]
            continue
        for part in block["text"].split("$ ")[1:]:
            command, _, output = part.partition("\n")
            yield "command", command, output


def said(command: str) -> str:
    """Run a command of the page as a shell would; those of mia-audit in this process."""
    command = command.replace("~/mia-audit", str(ROOT))
    if before := re.fullmatch(r"(?P<first>.*); (?P<last>mia-audit .*)", command):
        subprocess.run(before["first"], shell=True, check=True)
        command = before["last"]
    words = shlex.split(command)
    if words[0] == "mia-audit" and words[1] != "run":
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            main(words[1:])
        return stream.getvalue()
    if words[0] == "python" and words[1].endswith(".py"):
        runpy.run_path(words[1])
        return ""
    programs = {"python": [sys.executable], "mia-audit": [sys.executable, "-m", "mia_audit.cli"]}
    arguments = [*programs[words[0]], *words[1:]] if words[0] in programs else ["sh", "-c", command]
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def alike(text: str) -> list[str]:
    """Return the lines of an output without what differs between machines: numbers, how long it took, how full a line is."""
    whole = re.sub(r"\d[\d.,]*", "0", text.replace("\u00a0", " ").replace("−", "-"))
    return [" ".join(line.split()) for line in whole.splitlines() if line.strip()]


@pytest.mark.slow
def test_the_first_hour_is_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, what, text in steps():
        if kind == "file":
            Path(what).write_text(text)
        elif " run " in what:
            found = said(what).replace("\u00a0", " ")
            assert "Traceback" not in found and "With dp-sgd at ε = " in found, found[-2000:]
            lines = alike(found)
            headings = [line for line in alike(text) if line.startswith(("Caution", "Setting", "Report", "[", "Audit"))]
            assert headings and [line for line in headings if line not in lines and not line.startswith("[")] == []
        else:
            assert alike(said(what)) == alike(text), what


@pytest.mark.slow
def test_models_that_ones_own_code_trains_end_in_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/how-to/models.md, as it stands there."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    page = page[page.index("## Models that your own code trains") :]
    found = ""
    for kind, text in re.findall(r"```(bash|python|yaml)\n(.*?)```", page, re.DOTALL):
        if kind == "python":
            Path(text.splitlines()[0].removeprefix("# ")).write_text(text)
        elif kind == "yaml":
            Path("settings.yaml").write_text(text)
        else:
            found = said(text.strip())
    whole = " ".join(found.replace("\u00a0", " ").split())
    assert (
        "With plain, the model's outputs (" in whole
        and "With coarse, " in whole
        and "Guessing has an AUC of 0.5." in whole
    )
    assert Path("results/forest/report.html").is_file()
    settings = [line.split(",")[2] for line in Path("results/forest/tables/settings.csv").read_text().splitlines()[1:]]
    assert settings == ["plain", "coarse"]
    again = said("mia-audit audit --settings settings.yaml --no-report --out results/again")
    assert again.startswith("Strongest attack on plain: ") and "Strongest attack on coarse: " in again
