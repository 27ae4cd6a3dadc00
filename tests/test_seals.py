"""A table's digest: any one bit that changes anywhere in the file is noticed."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit import seals
from mia_audit.errors import UserError
from mia_audit.storage import open_table, read_table, table_facts, write_table

TABLE = pa.table({"record": np.arange(50, dtype=np.int32), "score": np.linspace(0, 1, 50, dtype=np.float32)})


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sealed") / "t.parquet"
    write_table(path, iter([TABLE[:30], TABLE[30:]]), "scores", 50, {"seed": 3})
    assert seals.state(path) == "whole"
    assert read_table(path, "scores").equals(TABLE)
    return path.read_bytes()


@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_no_flipped_bit_goes_unnoticed(
    sealed: bytes, tmp_path_factory: pytest.TempPathFactory, where: float, bit: int
) -> None:
    changed = bytearray(sealed)
    changed[int(where * len(sealed))] ^= 1 << bit
    path = tmp_path_factory.mktemp("flipped") / "t.parquet"
    path.write_bytes(changed)
    with pytest.raises(UserError, match=r"t\.parquet: (damaged|truncated or not Parquet|a .* table where)"):
        open_table(path, "scores")


def test_every_bit_of_the_metadata_is_covered(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    footer = int.from_bytes(sealed[-8:-4], "little") + 8
    for place in range(len(sealed) - footer, len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 4
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"t\.parquet: "):
            table_facts(path, "scores")


def test_a_changed_file_is_read_again(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(sealed)
    assert seals.state(path) == "whole"
    path.write_bytes(sealed[:500] + bytes(4) + sealed[504:])
    assert seals.state(path) == "damaged"


def test_the_digest_of_the_file_is_that_of_its_bytes(sealed: bytes, tmp_path: Path) -> None:
    path, damaged, foreign = (tmp_path / name for name in ("t.parquet", "damaged.parquet", "foreign.npy"))
    write_table(path, TABLE, "scores", len(TABLE))
    damaged.write_bytes(sealed[:200] + bytes(4) + sealed[204:])
    foreign.write_bytes(b"records")
    for file in (path, damaged, foreign):
        assert seals.sha256(file) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert [seals.state(file) for file in (path, damaged, foreign)] == ["whole", "damaged", "unsealed"]


def test_what_was_sealed_here_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "t.parquet", TABLE, "scores", len(TABLE))
    monkeypatch.setattr(seals, "_examine", lambda path: pytest.fail("read again"))
    assert seals.state(tmp_path / "t.parquet") == "whole"


def test_only_a_table_with_a_place_for_it_is_sealed(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="no metadata"):
        seals.seal(tmp_path / "t")
