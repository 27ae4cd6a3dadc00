"""Constants of columns: what is wrong with them is one line, and images have none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import pool_command

ROWS = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize(
    ("records", "section", "words"),
    [
        (ROWS, {"constants": {0: [-3, 3]}}, "datasets.mine.constants: nothing for column '1'"),
        (ROWS, {"constants": {0: [0, 1], 1: [0, 1], 2: [-3, 3]}}, "datasets.mine.constants.2: no such column"),
        (ROWS, {"constants": {0: [0, 0]}}, "constants.0.1: input should be greater than 0"),
        (np.zeros((20, 4, 4), np.uint8), {"standardise": "public", "public": 4}, "but these records are images"),
        (ROWS, {"mean": 0.5}, "datasets.mine.mean: only for images, but these records are rows of a table"),
    ],
)
def test_what_is_wrong_with_arrays_and_their_constants_is_one_line(
    records: np.ndarray, section: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, records=records, labels=np.arange(len(records)) % 2)
    stated = {"standardise": "stated"} if "constants" in section else {}
    out = tmp_path / "pool"
    assert pool_command({"source": "arrays", "path": str(path)} | stated | section, out) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert not out.exists()


def test_images_have_no_columns_to_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = {"source": "digits", "standardise": "stated", "constants": {"0": [0, 255]}}
    assert pool_command(section, tmp_path / "pool") == 2
    assert "mine.standardise: pool 'digits' does not" in capsys.readouterr().err
