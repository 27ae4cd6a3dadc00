"""Command lines: no value is ever split or run, and mistakes are found before anything is."""

import pytest

from mia_audit.errors import UserError
from mia_audit.learners.command_line import check_commands, filled

PREDICT = "p {records} {model} {out}"


def test_values_are_filled_in_after_the_words_were_split() -> None:
    values = {"out": "/a b/$(rm -rf ~);'x", "seed": 3}
    words = filled("""run --out={out} "{out} {seed}" '{{print}}' {{{seed}}}""", values)
    assert words == ["run", f"--out={values['out']}", f"{values['out']} 3", "{print}", "{3}"]


@pytest.mark.parametrize(
    ("train", "predict", "outputs", "message"),
    [
        (
            "t {records} {members} {model}",
            "",
            "logits",
            "predict: missing; train and predict must be given together",
        ),
        ("", PREDICT, "logits", "train: missing"),
        ("t {records} {members} {weights}", PREDICT, "logits", "unknown placeholder {weights}: known: "),
        ("t {records} {model}", PREDICT, "logits", "train: the command does not mention {members}"),
        ("t {records} {members}", PREDICT, "logits", "train: the command does not mention {model} or {out}"),
        (
            "t {records} {members} {model}",
            "p {records} {out}",
            "logits",
            "predict: the command does not mention {model}",
        ),
        ("t {records} {members} {model}", PREDICT + " {labels}", "logits", "predict: unknown placeholder {labels}"),
        ("t '{records} {members} {model}", PREDICT, "logits", "train: not a command line: No closing quotation"),
        ("{records} {members} {model}", PREDICT, "logits", "train: the command must begin with a program"),
        ("t {records} {members} {model}", PREDICT, "", "outputs: missing; state what predict writes"),
    ],
)
def test_mistakes_are_one_line(train: str, predict: str, outputs: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_commands(train, predict, outputs)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_good_pair_passes() -> None:
    check_commands("t {records} {members} {out} {{records}} {epsilon}", PREDICT, "labels")
