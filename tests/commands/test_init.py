"""From data to a config that runs."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from mia_audit.cli import main
from mia_audit.config.load import load_audit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    table = pl.DataFrame(random.normal(size=(60, 3)), schema=["age", "weight", "height"]).with_columns(
        patient_id=pl.Series(np.arange(60)),
        code=pl.Series([f"x{k % 3}" for k in range(60)]),
        diagnosis=pl.Series(random.integers(0, 2, 60)),
    )
    table.write_csv("people.csv")
    table.drop("patient_id").with_columns(diagnosis=pl.lit(1)).write_csv("well.csv")
    Path("train.py").write_text("def train(task): ...\ndef predict(model, records): ...\n")
    return tmp_path


def init(*words: str) -> int:
    return main(["init", *words])


def test_a_table_and_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert init("people.csv", "--drop", "patient_id", "--model", "train.py", "--outputs", "logits") == 0
    assert "people.yaml: 60 records, 2 classes" in capsys.readouterr().out
    audit = load_audit(Path("people.yaml"))
    section = audit.datasets["people"]
    assert (section.label, section.columns, section.public) == ("diagnosis", {"patient_id": "drop"}, 0)
    assert audit.architectures["mine"].learner == "script" and audit.explainers.methods == ()
    text = Path("people.yaml").read_text()
    assert "60 records, 6 columns, 2 classes" in text and "The audit trains your model 16 times" in text
    assert init("people.csv", "--drop", "patient_id") == 2
    assert "people.yaml: the file exists already" in capsys.readouterr().err


def test_a_table_alone_gets_a_small_network_and_an_estimate() -> None:
    assert init("people.csv", "--keep", "patient_id", "--name", "second") == 0
    section = load_audit(Path("second.yaml")).datasets["second"]
    assert (section.standardise, section.public, section.columns) == ("public", 10, {"patient_id": "feature"})
    assert "of one process on this machine" in Path("second.yaml").read_text()


def test_public_records_of_a_file_scale_the_columns() -> None:
    pl.read_csv("people.csv").with_columns(pl.col("age") + 1).write_csv("known.csv")
    assert init("people.csv", "--drop", "patient_id", "--public", "known.csv", "--no-estimate") == 0
    section = load_audit(Path("people.yaml")).datasets["people"]
    assert (section.standardise, section.public_path, section.drawn) == ("public", "known.csv", 0)


def test_images_and_arrays() -> None:
    for name, shade in (("cats", 0), ("dogs", 200)):
        (Path("pets") / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (16, 16), (shade, number, 0)).save(Path("pets") / name / f"{number}.png")
    assert init("pets", "--no-estimate") == 0
    audit = load_audit(Path("pets.yaml"))
    assert audit.datasets["pets"].source == "images" and audit.architectures["mine"].parameters["img_size"] == 16
    Path("numbers").mkdir()
    np.save("numbers/records.npy", np.zeros((5, 2), dtype=np.float32))
    np.save("numbers/labels.npy", np.arange(5) % 2)
    assert init("numbers", "--no-estimate", "--model", "sklearn.naive_bayes:GaussianNB") == 0
    assert load_audit(Path("numbers.yaml")).architectures["mine"].learner == "estimator"


def test_names_of_other_letters(capsys: pytest.CaptureFixture[str]) -> None:
    """An audit's name is in ASCII, so a name of other letters becomes one or is asked for; `--name` is checked."""
    for name in ("données", "数据"):
        Path(name).mkdir()
        np.save(f"{name}/records.npy", np.zeros((40, 2), dtype=np.float32) + np.arange(40)[:, None])
        np.save(f"{name}/labels.npy", np.arange(40) % 2)
    assert init("données", "--no-estimate") == 0
    assert load_audit(Path("donnees.yaml")).datasets["donnees"].path == "données"
    for words, message in (((), "数据: an audit's name has letters"), (("--name", "a b"), "--name: 'a b' becomes")):
        assert init("数据", "--no-estimate", *words) == 2
        assert message in capsys.readouterr().err
    assert init("数据", "--no-estimate", "--name", "data") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["people.csv"],
            "'patient_id' looks like an identifier, by a different value in every row: give --drop patient_id",
        ),
        (["people.csv", "--label", "diagnose"], "--label: no column 'diagnose': did you mean 'diagnosis'"),
        (["people.csv", "--drop", "patient"], "no column 'patient'; it has age, weight"),
        (["people.csv", "--drop", "patient_id", "--model", "train.py"], "--outputs: missing; state"),
        (["people.csv", "--drop", "patient_id", "--model", "train.py:fit"], "has no function 'fit(task)'; it has"),
        (["gone.csv"], "gone.csv: no such file or folder"),
        (["people.csv", "--label", "age", "--drop", "patient_id"], "--label: column"),
        (["well.csv", "--no-estimate"], "well.yaml: datasets.well: all records have the class '1'"),
    ],
)
def test_what_cannot_be_known_is_asked(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mia_audit.planning.first_config.CLASSES", 20)
    assert init(*words) == 2
    assert message in capsys.readouterr().err and not list(Path().glob("*.yaml"))


def test_somebody_who_is_there_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, "", "n")
    assert init("people.csv", "--no-estimate", "--name", "left") == 0
    assert init("people.csv", "--no-estimate", "--name", "kept") == 0
    found: list[Any] = [load_audit(Path(f"{name}.yaml")).datasets[name].columns for name in ("left", "kept")]
    assert found == [{"patient_id": "drop"}, {"patient_id": "feature"}] and "looks like an identifier" in asked[0]


VISITS = pl.DataFrame(
    {
        "patient": [f"p{k // 3:02d}" for k in range(90)],
        "visit": [f"v{k}" for k in range(90)],
        "school": [None, *([12] * 89)],
        "age": [k / 7 for k in range(90)],
        "label": ["a", "b"] * 45,
    }
)


def answering(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Answer at a terminal, and return what was asked."""
    left, asked = iter(answers), list[str]()

    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return next(left)

    monkeypatch.setattr("sys.stdin", Terminal)
    monkeypatch.setattr("builtins.input", answer)
    return asked


def test_an_identifier_that_repeats_is_proposed_as_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    VISITS.write_csv("visits.csv")
    asked = answering(monkeypatch, "", "", "12")
    assert init("visits.csv", "--no-estimate") == 0
    section = load_audit(Path("visits.yaml")).datasets["visits"]
    assert (section.person, section.columns, section.impute) == ("patient", {"visit": "drop"}, {"school": 12})
    assert "and repeats" in asked[0] and "Drop it?" in asked[1] and "1 values are missing in 'school'" in asked[2]


def test_everything_is_said_in_one_round(capsys: pytest.CaptureFixture[str]) -> None:
    VISITS.with_columns(seen=pl.Series([f"2021-{k % 12 + 1:02d}-{k % 28 + 1:02d}" for k in range(90)])).write_csv(
        "visits.csv"
    )
    assert init("visits.csv") == 2
    person, visit, school, seen = capsys.readouterr().err.splitlines()
    assert "'seen' holds dates, such as '2021-01-01'" in seen and "give --drop seen" in seen
    assert "give --person patient if" in person and ", --drop patient, or --keep" in person
    assert "give --drop visit, --person visit" in visit
    assert "'school': 1 values are missing" in school and "--impute school=CONSTANT, or --drop" in school


def test_the_class_is_asked_for_in_the_same_round(capsys: pytest.CaptureFixture[str]) -> None:
    VISITS.rename({"label": "course"}).write_csv("visits.csv")
    assert init("visits.csv") == 2
    label, person, *_ = capsys.readouterr().err.splitlines()
    assert "--label: no column is called" in label and "these have few values: " in label
    assert "give --person patient" in person


def test_answers_are_not_lost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    VISITS.with_columns(born=pl.lit("2001-02-03")).write_csv("visits.csv")
    answering(monkeypatch, "p", "", "", "n")
    assert init("visits.csv", "--no-estimate") == 2
    told = capsys.readouterr().err
    assert "column 'born' holds dates" in told
    assert "With your answers: mia-audit init visits.csv --label label --person patient --drop visit school" in told
    assert not Path("visits.yaml").exists()
