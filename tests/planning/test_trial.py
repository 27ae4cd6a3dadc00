"""The user's own code is tried on a few records before an audit."""

from pathlib import Path
from typing import Any

import pytest

from mia_audit.cli import main
from mia_audit.config.load import check_audit
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.planning.sizes import Size
from mia_audit.planning.trial import OutOfTime, tried

SIZE = Size(569, 0, (30,), 2)
CONFIG = """audit: mine
datasets: {breast_cancer: {}}
architectures: {own: {model: net.py}}
mechanisms: {none: {}}
membership: {models: 4}
explainers: {methods: []}
"""
WORKS = """
from sklearn.linear_model import LogisticRegression

def train(task):
    assert len(task.records) == 200
    rows = task.members
    return LogisticRegression(max_iter=20).fit(task.records[rows], task.labels[rows])
"""
FAILS = "def train(task):\n    records = task.records\n    return records.fit()\n"


def audit(**architectures: Any) -> Audit:
    values = {"datasets": {"breast_cancer": {}}, "mechanisms": {"none": {}}, "explainers": {"methods": []}}
    return check_audit({"audit": "mine", **values, "architectures": architectures}, "mine.yaml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_code_that_does_not_end_is_stopped() -> None:
    Path("net.py").write_text(WORKS)
    with pytest.raises(OutOfTime, match=r"architectures.own: its trial on a few records did not end in 0.2 s"):
        tried(audit(own={"model": "net.py"}), "breast_cancer", "own", SIZE, seconds=0.2)


@pytest.mark.slow
def test_the_exception_and_its_line_are_said() -> None:
    Path("net.py").write_text(FAILS)
    with pytest.raises(UserError) as caught:
        tried(audit(own={"model": "net.py"}), "breast_cancer", "own", SIZE)
    assert "train: net.py, line 3: AttributeError: " in str(caught.value)
    assert str(caught.value).endswith("(tried on a few records)") and "traceback" not in str(caught.value)


@pytest.mark.slow
def test_check_tries_code_only_if_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text(WORKS)
    Path("mine.yaml").write_text(CONFIG)
    assert main(["check", "mine.yaml", "--with-code"]) == 0
    assert "follows the schema" in capsys.readouterr().out
    Path("net.py").write_text(FAILS)
    assert main(["check", "mine.yaml"]) == 0
    assert main(["check", "mine.yaml", "--with-code"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mia-audit: mine.yaml: architectures.own: net.py") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "function"),
    [("def make(**parameters): ...\n", "make"), ("def make(): ...\n", "make"), ("def train(a, b): ...\n", "train")],
)
def test_a_function_that_takes_no_task_is_refused_without_running_it(text: str, function: str) -> None:
    Path("net.py").write_text(text)
    with pytest.raises(UserError, match=rf"net.py: '{function}' takes no task: expected {function}\(task\)"):
        audit(own={"model": f"net.py:{function}"})
