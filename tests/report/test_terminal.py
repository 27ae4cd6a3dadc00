"""answer.json, and the report's answer in the terminal."""

import json
from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.report.answer import answer_content, answer_text

ROWS = [
    {
        "setting": "No protection",
        "attacks": {"outputs": {"beats_guessing": True, "auc": {"mean": 0.666, "low": 0.659, "high": 0.674}}},
        "train_accuracy": None,
        "test_accuracy": None,
    },
    {
        "setting": "dp-sgd, ε = 8",
        "attacks": {"explanations": {"beats_guessing": False, "auc": {"mean": 0.503, "low": 0.498, "high": 0.509}}},
        "train_accuracy": None,
        "test_accuracy": None,
    },
]
GROUP = {"name": "digits", "conclusion": "The outputs leak.", "members": "training records", "rows": ROWS}


def _write(folder: Path, *groups: dict[str, object], cautions: tuple[str, ...] = ()) -> None:
    content = {"title": "Digits", "confidence": 0.95, "cautions": cautions, "groups": groups}
    (folder / "answer.json").write_text(json.dumps(content))


def test_sentences_table_and_path_are_printed(tmp_path: Path) -> None:
    _write(tmp_path, GROUP, cautions=("Worse than guessing.",))
    (tmp_path / "tables").mkdir()
    lines = answer_text(tmp_path).replace("\u00a0", " ").splitlines()
    assert lines[:11] == [
        "Digits",
        "",
        "Caution: Worse than guessing.",
        "",
        "The outputs leak.",
        "",
        "Setting        Outputs                 Explanations",
        "-------------  ----------------------  ------------------------",
        "No protection  0.666 (0.659 to 0.674)  not attacked",
        "dp-sgd, ε = 8  not attacked            0.503 (0.498 to 0.509) *",
        "",
    ]
    assert lines[-1] == f"Report: {tmp_path / 'report.html'} (beside it: tables/)"


@pytest.mark.parametrize(
    ("low", "high", "mark", "note"),
    [
        (0.51, 0.60, "", ""),
        (0.49, 0.60, " *", "* not distinguishable from guessing"),
        (0.41, 0.49, " †", "† worse than guessing"),
        (None, None, "", ""),
    ],
)
def test_an_interval_and_what_is_said_of_it_follow_one_rule(
    tmp_path: Path, low: float | None, high: float | None, mark: str, note: str
) -> None:
    auc = {"mean": 0.55, "low": low, "high": high}
    rows = [ROWS[0] | {"attacks": {"outputs": {"beats_guessing": True, "auc": auc}}}]
    _write(tmp_path, GROUP | {"rows": rows})
    lines = answer_text(tmp_path).splitlines()
    row = next(line for line in lines if line.startswith("No protection"))
    assert row.endswith(("(one target, no interval)" if low is None else ")") + mark)
    assert [line for line in lines if line.startswith(("*", "†"))] == [note] * bool(note)


def test_accuracies_and_the_base_rate_stand_in_the_table(tmp_path: Path) -> None:
    accuracies = {
        f"{phase}_accuracy": {"mean": mean, "low": mean, "high": mean}
        for phase, mean in (("train", 1.0), ("test", 0.75))
    }
    _write(tmp_path, GROUP | {"rows": [ROWS[0] | accuracies], "base_rate": 0.625})
    text = " ".join(answer_text(tmp_path).replace("\u00a0", " ").split())
    assert "Outputs Train accuracy Test accuracy" in text
    assert "100.0 % (100.0 to 100.0 %) 75.0 %" in text and "an accuracy of 62.5 %. Guessing" in text


def test_several_parts_are_named_and_studies_have_no_table(tmp_path: Path) -> None:
    _write(tmp_path, *({"name": name, "conclusion": f"{name} leaks."} for name in ("forest", "labels")))
    assert answer_text(tmp_path).splitlines()[2:-1] == ["forest", "forest leaks.", "", "labels", "labels leaks.", ""]


@pytest.mark.parametrize("text", ["{}", "[]", '{"title": 1, "cautions": 2}', "{"])
def test_without_an_answer_it_says_what_was_expected(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"answer.json: no such file; expected the results of a finished audit"):
        answer_text(tmp_path)
    (tmp_path / "answer.json").write_text(text)
    with pytest.raises(UserError, match=r"answer.json: damaged"):
        answer_text(tmp_path)


def test_the_answer_has_the_numbers_of_the_findings(small, findings) -> None:  # type: ignore[no-untyped-def]
    content = answer_content(small.results(), findings)
    (group,) = content["groups"]
    for row, finding in zip(group["rows"], findings.settings, strict=True):
        assert row["test_accuracy"]["mean"] == finding.test_accuracy.mean
        assert row["train_accuracy"]["mean"] == finding.train_accuracy.mean
        for channel, leak in finding.strongest.items():
            assert row["attacks"][channel]["auc"]["low"] == leak.auc_estimate.low
    assert group["base_rate"] == small.results().guessing(findings.settings[0].setting).accuracy
    json.dumps(content, allow_nan=False)
