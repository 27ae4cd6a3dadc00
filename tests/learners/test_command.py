"""Commands: files in, files out, in any language; what they do wrong is one line."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.learners import Compute, Records, TrainingTask
from mia_audit.learners.kinds.command import MODEL, CommandLearner, array_file, person_numbers

MakeTask = Callable[..., TrainingTask]
Described = Callable[..., dict[str, Any]]
Write = Callable[..., Path]

TRAIN = """
import json
import sys

import numpy as np

records, labels, members, out, *rest = sys.argv[1:]
rows, classes = np.load(records)[np.load(members)], np.load(labels)[np.load(members)]
print("training on", len(rows), "records", *rest)
centres = [rows[classes == one].mean(axis=0).tolist() for one in range(3)]
with open(out, "w") as file:
    json.dump({"centres": centres, "rest": rest}, file)
"""

PREDICT = """
import json
import sys

import numpy as np

records, model, out = sys.argv[1:4]
centres = np.array(json.load(open(model))["centres"])
distances = ((np.load(records)[:, None] - centres) ** 2).sum(axis=2)
powers = np.exp(-distances)
np.save(out, (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32))
"""

PYTHON = shlex.quote(sys.executable)
COMMANDS = {
    "train": f"{PYTHON} 'my train.py' {{records}} {{labels}} {{members}} {{model}} {{epsilon}} {{delta}} {{seed}} {{device}} {{{{x}}}}",
    "predict": f"{PYTHON} predict.py {{records}} {{model}} {{out}}",
    "outputs": "probabilities",
}


@pytest.fixture
def programs(script: Write) -> Write:
    """A command that trains and one that predicts, in files."""
    script(TRAIN, "my train.py")
    script(PREDICT, "predict.py")
    return script


def learner_of(described: Described, minutes: float = 0.0, **section: Any) -> CommandLearner:
    architecture = described(CommandLearner, "mine", **(COMMANDS | section))
    json.dumps(architecture)
    return CommandLearner(architecture, Compute("cpu", minutes=minutes))


def test_commands_train_and_predict(
    programs: Write,
    described: Described,
    task: MakeTask,
    table: Records,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    learner = learner_of(described)
    trained = learner.train(task(epsilon=2.0))
    assert "training on 30 records 2.0 0.0001" in capfd.readouterr().err  # its log is the job's
    logits = trained.logits(table)
    np.testing.assert_allclose(np.exp(logits).sum(axis=1), 1, rtol=1e-6)
    folder = tmp_path / "a folder"
    folder.mkdir()
    trained.save(folder)
    stored = json.loads((folder / MODEL).read_text())
    assert stored["rest"] == ["2.0", "0.0001", str(task().seed % 2**31), "cpu", "{x}"]
    np.testing.assert_array_equal(learner_of(described).load(folder).logits(table), logits)
    again = learner.train(task(epsilon=2.0))
    (tmp_path / "again").mkdir()
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / MODEL).read_bytes() == (folder / MODEL).read_bytes()


def test_a_folder_and_public_records_are_files_too(
    programs: Write, described: Described, task: MakeTask, table: Records, tmp_path: Path
) -> None:
    text = "import sys, pathlib, numpy as np; p = pathlib.Path(sys.argv[1]); p.mkdir(); (p / 'n').write_text(str(np.load(sys.argv[2]).shape))"
    train = f"{PYTHON} -c {shlex.quote(text)} {{out}} {{public}} {{records}} {{members}}"
    learner = learner_of(described, train=train)
    assert learner.architecture["reads_public"]
    learner.train(task(public=table[:7])).save(tmp_path)
    assert (tmp_path / MODEL / "n").read_text() == "(7, 4)"


def test_persons_and_progress_are_files(
    programs: Write, described: Described, task: MakeTask, table: Records, tmp_path: Path
) -> None:
    text = (
        "import sys, numpy as np; open(sys.argv[4], 'a').write('8 1\\nnonsense\\n8 2\\n8'); "
        "np.save(open(sys.argv[1], 'wb'), np.load(sys.argv[2]))"
    )
    train = f"{PYTHON} -c {shlex.quote(text)} {{out}} {{persons}} {{records}} {{progress}} {{members}}"
    learner = learner_of(described, train=train)
    steps: list[tuple[int, int]] = []
    trained = learner.train(task(progress=lambda *step: steps.append(step)))
    trained.save(tmp_path)
    assert steps == [(8, 1), (8, 2)], "a line that is not finished waits"
    np.testing.assert_array_equal(np.load(tmp_path / MODEL), np.arange(60))
    names = np.array(["b", "a"] * 30)
    assert person_numbers(replace(table, persons=names)).tolist() == [1, 0] * 30
    assert replace(table, persons=names)[3:5].persons.tolist() == ["a", "b"]


def test_a_pools_own_file_is_handed_over_as_it_is(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "pool.npy", values)
    mapped = np.load(tmp_path / "pool.npy", mmap_mode="r")
    assert array_file(mapped, tmp_path / "copy.npy") == tmp_path / "pool.npy"
    for part in (mapped[1:3], mapped[[3, 0, 1, 2]]):
        assert array_file(part, tmp_path / "copy.npy") == tmp_path / "copy.npy"
        np.testing.assert_array_equal(np.load(tmp_path / "copy.npy"), part)


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        (
            "my train.py",
            "print(",
            "raise RuntimeError('no data')\nprint(",
            "ended with exit code 1: RuntimeError: no data .its output",
        ),
        ("my train.py", "print(", "import os\nos.kill(os.getpid(), 9)\nprint(", "was ended by SIGKILL"),
        ("my train.py", 'out, "w"', "out + '1', \"w\"", r"wrote neither a file nor a folder to \{model\}"),
        ("my train.py", "print(", "import time\ntime.sleep(60)\nprint(", "look for an endless loop"),
        ("predict.py", "np.save(out", "np.save(out + '.else'", r"wrote no file to \{out\}"),
        ("predict.py", "np.save(out, ", "open(out, 'w').write('x') or (", r"\{out\} is not a NumPy array"),
        (
            "predict.py",
            "np.save(out, (powers",
            "np.save(out, np.sort(powers, axis=0) / (powers",
            "not one probability|in the order",
        ),
        ("predict.py", "np.load(records)[", "np.load(records)[::-1][", "output for record .* in another order"),
        ("predict.py", "np.save(out, (powers", "np.save(out, 2 * (powers", "not one probability per class"),
        ("predict.py", "np.save(out, (", "np.save(out, np.argmax(", "outputs of|exit code"),
    ],
)
def test_commands_that_do_wrong_are_one_line(
    file: str,
    before: str,
    after: str,
    message: str,
    programs: Write,
    described: Described,
    task: MakeTask,
    table: Records,
) -> None:
    text = TRAIN if file == "my train.py" else PREDICT
    assert before in text
    programs(text.replace(before, after), file)
    learner = learner_of(described, minutes=0.02 if "sleep" in after else 0)
    with pytest.raises(UserError, match=message) as caught:
        learner.train(task()).logits(table)
    key = "train" if file == "my train.py" else "predict"
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"architectures.mine: {key}: ")


def test_lost_models_and_missing_programs_are_named(programs: Write, described: Described, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"model: no such file; expected the output of the train command of architectures\.mine"
    ):
        learner_of(described).load(tmp_path)
    with pytest.raises(UserError, match=r"architectures\.mine\.train: no program 'no-such-program' on the PATH"):
        learner_of(described, train="no-such-program {records} {members} {model}")
