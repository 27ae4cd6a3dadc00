"""Trained models on disk: used again where they are what is wanted, and trained again otherwise."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.training.report import SCHEMA
from mia_audit.training.stored import (
    discard,
    file_digests,
    finished,
    first_folder,
    shadow_folders,
    stated_digests,
    training_keys,
    write_diverged,
    write_training,
)

ROWS = SCHEMA.empty_table()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Model 3 with two files, and model 4, whose training diverged."""
    folder = tmp_path / "models" / "shadow-3"
    (folder / "more").mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(b"weights")
    (folder / "more" / "masks").write_bytes(b"masks")
    write_training(tmp_path / "models", 3, "key", ROWS)
    write_diverged(tmp_path / "models", 4, "key", "diverged in epoch 1: nan")
    return tmp_path / "models"


@pytest.mark.parametrize("name", ["weights.safetensors", "more/masks"])
@pytest.mark.parametrize("content", [b"others", None])
def test_a_model_is_finished_under_its_key_alone_and_while_every_file_is_whole(
    models: Path, name: str, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finished(models, 3, "key") == ROWS
    assert finished(models, 3, "another") is None and finished(models, 5, "key") is None
    path = models / "shadow-3" / name
    path.write_bytes(content) if content else path.unlink()
    assert finished(models, 3, "key") is None
    said = capsys.readouterr().err
    assert f"warning: {path}: does not match its digest" in said and "shadow-3.parquet" in said


def test_a_damaged_table_is_no_table(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = models / "shadow-3.parquet"
    table.write_bytes(table.read_bytes()[:-9])
    assert finished(models, 3, "key") is None
    assert f"warning: {table}: truncated" in capsys.readouterr().err


def test_a_model_that_diverged_is_known_and_has_no_folder(models: Path) -> None:
    assert finished(models, 4, "key") is not None
    assert shadow_folders(models, range(3, 5)) == {3: models / "shadow-3"}
    assert first_folder(models) == models / "shadow-3"


@pytest.fixture
def three(models: Path) -> Path:
    """Models 3, 5 and 6, and 4, whose training diverged."""
    for shadow in (5, 6):
        (models / f"shadow-{shadow}").mkdir()
        (models / f"shadow-{shadow}" / "weights.safetensors").write_bytes(b"weights")
        (models / f"shadow-{shadow}" / "masks.safetensors").write_bytes(b"masks")
        write_training(models, shadow, "key", ROWS)
    return models


def test_discarded_models_stay_finished_and_say_that_their_weights_are_gone(three: Path) -> None:
    folder = three / "shadow-6"
    digests = file_digests(folder)
    assert discard(three, range(3, 7), keep=6) == 1 and discard(three, range(3, 7), keep=6) == 1
    assert finished(three, 6, "key") == ROWS and finished(three, 6, "another") is None
    assert {path.name for path in folder.iterdir()} == {"discarded.txt", "masks.safetensors"}
    assert stated_digests(three, 6, folder) == digests
    assert [*shadow_folders(three, range(3, 7), weights=False)] == [3, 5, 6]
    with pytest.raises(
        UserError, match=rf"{folder}: the weights were deleted .*compute.weights: temporary.*--forcerun"
    ):
        shadow_folders(three, range(3, 7))


def test_the_first_model_keeps_its_weights(three: Path) -> None:
    assert discard(three, range(3, 7), keep=0) == 2
    assert (three / "shadow-3" / "weights.safetensors").exists()
    assert not (three / "shadow-5" / "weights.safetensors").exists()


def test_a_damaged_model_is_not_discarded(three: Path) -> None:
    (three / "shadow-5" / "weights.safetensors").write_bytes(b"others")
    with pytest.raises(UserError, match="does not match its digest in the model's table"):
        discard(three, range(3, 7), keep=0)
    assert not (three / "shadow-5" / "discarded.txt").exists()


def test_a_missing_model_is_named(models: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"shadow-5: no such model; expected shadow model 5\. Delete .*\.jobs and run again"
    ):
        shadow_folders(models, range(3, 6))
    with pytest.raises(UserError, match="no folders shadow-"):
        first_folder(tmp_path)


def test_a_key_depends_on_the_models_own_column_and_on_all_that_training_reads(tmp_path: Path) -> None:
    file = tmp_path / "records.parquet"
    file.write_bytes(b"records")
    member = np.array([[1, 0, 1], [0, 1, 1]], dtype=bool)
    keys = training_keys(range(3), member, {"seed": 0}, [file])
    assert len(set(keys.values())) == 3
    assert training_keys(range(2), member[:, :2], {"seed": 0}, [file]) == {0: keys[0], 1: keys[1]}
    changed = member.copy()
    changed[0, 2] = False
    assert training_keys(range(3), changed, {"seed": 0}, [file]) == keys | {
        2: training_keys([2], changed[:, 2:], {"seed": 0}, [file])[2]
    }
    assert not set(training_keys(range(3), member, {"seed": 1}, [file]).values()) & set(keys.values())
    file.write_bytes(b"other records")
    assert not set(training_keys(range(3), member, {"seed": 0}, [file]).values()) & set(keys.values())
