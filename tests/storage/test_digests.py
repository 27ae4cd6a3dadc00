"""Digests of tables, stamps of jobs, and the files that provenance.json states."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit.errors import UserError
from mia_audit.storage import digests, open_table, read_table, table_metadata, write_table
from mia_audit.storage.digests import provenance_differences
from mia_audit.storage.tables import clear_stamps, parse_range, write_stamp

TABLE = pa.table({"record": np.arange(50, dtype=np.int32), "score": np.linspace(0, 1, 50, dtype=np.float32)})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "t.parquet"
    write_table(path, iter([TABLE[:30], TABLE[30:]]), "scores", 50, {"seed": 3})
    assert digests.state(path) == "whole"
    assert read_table(path, "scores").equals(TABLE)
    return path.read_bytes()


@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_every_flipped_bit_is_detected(
    written: bytes, tmp_path_factory: pytest.TempPathFactory, where: float, bit: int
) -> None:
    changed = bytearray(written)
    changed[int(where * len(written))] ^= 1 << bit
    path = tmp_path_factory.mktemp("flipped") / "t.parquet"
    path.write_bytes(changed)
    with pytest.raises(UserError, match=r"t\.parquet: (damaged|truncated or not Parquet|a .* table where|no column)"):
        open_table(path, "scores")


def test_every_bit_of_the_metadata_is_covered(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    footer = int.from_bytes(written[-8:-4], "little") + 8
    for place in range(len(written) - footer, len(written)):
        changed = bytearray(written)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"t\.parquet: "):
            table_metadata(path, "scores")


def test_a_changed_file_is_read_again(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(written)
    assert digests.state(path) == "whole"
    path.write_bytes(written[:500] + bytes(4) + written[504:])
    assert digests.state(path) == "damaged"


def test_the_digest_of_the_file_is_that_of_its_bytes(written: bytes, tmp_path: Path) -> None:
    path, damaged, foreign = (tmp_path / name for name in ("t.parquet", "damaged.parquet", "foreign.npy"))
    write_table(path, TABLE, "scores", len(TABLE))
    damaged.write_bytes(written[:200] + bytes(4) + written[204:])
    foreign.write_bytes(b"records")
    for file in (path, damaged, foreign):
        assert digests.sha256(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert [digests.state(file) for file in (path, damaged, foreign)] == ["whole", "damaged", "absent"]


def test_a_file_written_here_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "t.parquet", TABLE, "scores", len(TABLE))
    monkeypatch.setattr(digests, "_examine", lambda path: pytest.fail("read again"))
    assert digests.state(tmp_path / "t.parquet") == "whole"


def test_a_file_without_the_metadata_key_gets_no_digest(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="no metadata"):
        digests.embed_digest(tmp_path / "t")


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


def test_a_name_longer_than_any_file_has_is_a_missing_file(tmp_path: Path) -> None:
    name = "report.html" + 300 * "9"
    stated = {"inputs_sha256": {}, "page_sha256": {name: "0"}}
    (tmp_path / "provenance.json").write_text(json.dumps(stated))
    (line,) = provenance_differences(tmp_path)
    assert line.endswith("missing, but provenance.json names it")
