"""Stamps of jobs: no model stands in two of them."""

from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.storage.tables import clear_stamps, parse_range, write_stamp


def test_a_stamp_replaces_those_that_name_one_of_its_models(tmp_path: Path) -> None:
    for name in ("000-008", "009-016", "017-020", "900-1000"):
        write_stamp(tmp_path / name, {})
    (tmp_path / "note-1").touch()
    clear_stamps(tmp_path, parse_range("009-017", "--shadows"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000-008", "900-1000", "note-1"]
    clear_stamps(tmp_path / "none", range(3))


def test_equal_keys_are_equal_bytes(tmp_path: Path) -> None:
    write_stamp(tmp_path / "0-1", {0: "a", 1: "b"})
    write_stamp(tmp_path / "000-001", {1: "b", 0: "a"})
    assert (tmp_path / "0-1").read_bytes() == (tmp_path / "000-001").read_bytes()


@pytest.mark.parametrize("text", ["2-1", "3", "a-b", "-1", "1-2-3", ""])
def test_a_range_is_first_and_last(text: str) -> None:
    assert parse_range("009-0017", "--shadows") == range(9, 18)
    with pytest.raises(UserError, match="expected the numbers of the first and the last model"):
        parse_range(text, "--shadows")
