"""The membership that somebody's own script trains by."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.cli import main


def draw(folder: Path, *words: str) -> np.ndarray:
    command = ["draw-membership", "--records", "20", "--models", "6", "--out", str(folder / "member.npy"), *words]
    assert main(command) == 0
    member: np.ndarray = np.load(folder / "member.npy")
    return member


def test_every_model_has_a_half_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    member = draw(tmp_path)
    assert member.shape == (20, 6) and member.dtype == bool and (member.sum(axis=0) == 10).all()
    assert len(np.unique(member, axis=1).T) == 6
    assert "20 records × 6 models; train model k on" in capsys.readouterr().out
    np.testing.assert_array_equal(draw(tmp_path), member)
    assert (draw(tmp_path, "--seed", "1") != member).any()


@pytest.mark.parametrize("kind", ["txt", "npy"])
def test_a_persons_records_are_in_together(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [f"p{k % 7}" for k in range(20)]
    file = tmp_path / f"ids.{kind}"
    np.save(file, np.array(ids)) if kind == "npy" else file.write_text("\n".join(ids))
    member = draw(tmp_path, "--person", str(file))
    for person in set(ids):
        rows = member[[k for k, one in enumerate(ids) if one == person]]
        assert (rows == rows[0]).all()
    assert "20 records of 7 persons" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--models", "3"], "--models 3: attacks need at least 4"),
        (["--records", "1"], "--records 1: expected two or more"),
        (["--out", "member.csv"], "expected a file that ends in .npy"),
        (["--person", "gone.txt"], "--person gone.txt: cannot be read"),
        (["--person", "few.txt"], "--person few.txt: 2 ids for 20 records: expected one each"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few.txt").write_text("a\nb\n")
    command = ["draw-membership", "--records", "20", "--models", "6", "--out", "member.npy"]
    assert main([*command, *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not Path("member.npy").exists()
