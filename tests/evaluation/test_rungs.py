"""ladder.csv is read as it was written."""

from pathlib import Path
from typing import Any

import pytest

from mia_audit.errors import UserError
from mia_audit.evaluation.rungs import COLUMNS, read_rungs, write_rungs

ROW: dict[str, Any] = {
    "setting": "toy/net/none-epsinf",
    "models": 5,
    "attack": "loss-lira",
    "signal": "confidence",
    "likelihood": "blend",
    "metric": "auc",
    "scored": 1.0,
    "mean": 0.61234567,
    "low": 0.5,
    "high": float("nan"),
    "decision": "wider than requested",
    "more": 4,
    "recipe": "0123456789012345",
}


def test_unknown_numbers_are_left_out_and_digests_stay_text(tmp_path: Path) -> None:
    write_rungs(tmp_path / "ladder.csv", [ROW])
    (row,) = read_rungs(tmp_path / "ladder.csv").to_dicts()
    assert list(row) == list(COLUMNS)
    assert row == ROW | {"mean": 0.612346, "high": None, "requested": None, "seconds": None}
    write_rungs(tmp_path / "ladder.csv", [])
    assert len(read_rungs(tmp_path / "ladder.csv")) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "not a table"), ("setting,models\na,b\n", "not a table"), ("setting,models\na,5\n", "no column 'attack'")],
)
def test_another_file_is_a_mistake(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "ladder.csv").write_text(text)
    with pytest.raises(UserError, match=f"ladder.csv: {message}"):
        read_rungs(tmp_path / "ladder.csv")
