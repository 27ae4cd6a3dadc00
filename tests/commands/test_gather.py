"""Joining blocks: every shadow and record exactly once, in order, or an error that names the file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mia_audit.cli import main
from mia_audit.pools.files import write_membership
from mia_audit.storage import open_table, read_table, write_table

RECORDS, SHADOWS = 6, 4


def write_block(path: Path, shadows: list[int], **columns: float) -> Path:
    tables = [
        pa.table(
            {
                "shadow": pa.array([shadow] * RECORDS, pa.int32()),
                "record": pa.array(range(RECORDS), pa.int32()),
                **{name: pa.array([value + shadow] * RECORDS, pa.float32()) for name, value in columns.items()},
            }
        )
        for shadow in shadows
    ]
    write_table(path, iter(tables), "signals", RECORDS * len(shadows))
    return path


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    membership = np.random.default_rng(0).random((RECORDS, SHADOWS)) < 0.5
    write_membership(tmp_path / "membership.parquet", membership, {})
    write_block(tmp_path / "gradient" / "000-001.parquet", [0, 1], loss=0.5, ixg_l1=10)
    write_block(tmp_path / "gradient" / "002-003.parquet", [2, 3], loss=0.5, ixg_l1=10)
    write_block(tmp_path / "ig" / "000-003.parquet", [0, 1, 2, 3], ig_l1=20)
    return tmp_path


def gather(setting: Path, *families: list[str]) -> int:
    signals = [word for files in families for word in ("--signals", *(str(setting / file) for file in files))]
    return main(
        [
            "gather",
            *signals,
            "--membership",
            str(setting / "membership.parquet"),
            "--out",
            str(setting / "signals.parquet"),
        ]
    )


GRADIENT = ["gradient/000-001.parquet", "gradient/002-003.parquet"]


def test_families_stand_side_by_side_and_shadows_below_each_other(setting: Path) -> None:
    assert gather(setting, GRADIENT, ["ig/000-003.parquet"]) == 0
    table = read_table(setting / "signals.parquet", "signals")
    assert table.column_names == ["shadow", "record", "member", "loss", "ixg_l1", "ig_l1"]
    assert table["shadow"].to_pylist() == [shadow for shadow in range(SHADOWS) for _ in range(RECORDS)]
    assert table["ig_l1"].to_pylist() == [20 + shadow for shadow in table["shadow"].to_pylist()]
    assert open_table(setting / "signals.parquet", "signals").num_row_groups == SHADOWS


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ([GRADIENT[:1]], "no signals of shadow 2"),
        ([[GRADIENT[1], GRADIENT[0]]], "002-003.parquet: expected the 6 records of shadow 0"),
        ([[*GRADIENT, GRADIENT[1]]], "002-003.parquet: more shadows than the 4"),
    ],
)
def test_missing_swapped_or_surplus_blocks_are_named(
    setting: Path, families: list[list[str]], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gather(setting, *families) == 2
    assert message in capsys.readouterr().err
    assert not (setting / "signals.parquet").exists()


@pytest.mark.parametrize("kept", [20, -10])
def test_a_truncated_block_is_named_and_never_averaged_in(
    setting: Path, kept: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = setting / GRADIENT[1]
    path.write_bytes(path.read_bytes()[:kept])
    assert gather(setting, GRADIENT) == 2
    assert "002-003.parquet: truncated or not Parquet" in capsys.readouterr().err
    assert not (setting / "signals.parquet").exists()
