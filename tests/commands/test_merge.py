"""Joining tables: every shadow and record exactly once, in order, or an error that names the file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mia_audit.pools.store import write_membership
from mia_audit.storage import open_table, read_table, table_metadata, write_table

from ..builders import run

RECORDS, SHADOWS = 6, 4


def write_one(path: Path, shadow: int, **columns: float) -> None:
    table = {name: np.full(RECORDS, value + shadow, np.float32) for name, value in columns.items()}
    keys = {"shadow": np.full(RECORDS, shadow, np.int32), "record": np.arange(RECORDS, dtype=np.int32)}
    write_table(path, pa.table(keys | table), "signals", RECORDS)


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    membership = np.random.default_rng(0).random((RECORDS, SHADOWS)) < 0.5
    write_membership(tmp_path / "membership.parquet", membership, {})
    for shadow in range(SHADOWS):
        write_one(tmp_path / "gradient" / f"shadow-{shadow}.parquet", shadow, loss=0.5, ixg_l1=10)
        write_one(tmp_path / "ig" / f"shadow-{shadow}.parquet", shadow, ig_l1=20)
    return tmp_path


def merge(setting: Path, *families: str, count: int = SHADOWS, **options: Path) -> int:
    files = {"membership": setting / "membership.parquet", "out": setting / "signals.parquet"}
    return run("merge", signals=setting, spec={"families": families, "models": count}, **files, **options)


def test_families_stand_side_by_side_and_shadows_below_each_other(setting: Path) -> None:
    assert merge(setting, "gradient", "ig") == 0
    table = read_table(setting / "signals.parquet", "signals")
    assert table.column_names == ["shadow", "record", "member", "loss", "ixg_l1", "ig_l1"]
    assert table["shadow"].to_pylist() == [shadow for shadow in range(SHADOWS) for _ in range(RECORDS)]
    assert table["ig_l1"].to_pylist() == [20 + shadow for shadow in table["shadow"].to_pylist()]
    assert open_table(setting / "signals.parquet", "signals").num_row_groups == SHADOWS


def test_fewer_models_than_there_are_are_joined_as_if_there_were_no_others(setting: Path) -> None:
    assert merge(setting, "gradient", count=2) == 0
    assert read_table(setting / "signals.parquet", "signals")["shadow"].unique().to_pylist() == [0, 1]


def test_missing_swapped_or_surplus_signals_are_named(setting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [setting / "gradient" / f"shadow-{shadow}.parquet" for shadow in range(SHADOWS)]
    write_one(paths[1], 2, loss=0.5, ixg_l1=10)
    assert merge(setting, "gradient") == 2
    assert "shadow-1.parquet: expected the 6 rec" in capsys.readouterr().err
    paths[1].unlink()
    assert merge(setting, "gradient") == 2
    assert "shadow-1.parquet: no such file" in capsys.readouterr().err
    assert not (setting / "signals.parquet").exists()


@pytest.mark.parametrize("kept", [20, -10])
def test_a_truncated_table_is_named_and_never_averaged_in(
    setting: Path, kept: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = setting / "gradient" / "shadow-2.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    assert merge(setting, "gradient") == 2
    assert "shadow-2.parquet: truncated or" in capsys.readouterr().err
    assert not (setting / "signals.parquet").exists()


def test_facts_about_models_stay_with_a_settings_training(setting: Path) -> None:
    for shadow in range(SHADOWS):
        known: dict[str, object] = {"diverged": {"1": "why"}} if shadow == 1 else {}
        table = pa.table({"shadow": pa.array([shadow], pa.int32())})
        write_table(setting / "models" / f"shadow-{shadow}.parquet", table, "training", 1, known)
    trained = {"models": setting / "models", "training": setting / "training.parquet"}
    assert merge(setting, "gradient", **trained) == 0
    assert table_metadata(setting / "training.parquet", "training")["diverged"] == {"1": "why"}
    assert read_table(setting / "training.parquet", "training")["shadow"].to_pylist() == list(range(SHADOWS))


@pytest.mark.parametrize(("what", "value"), [("train_loss", 0.1), ("test_accuracy", 0.0), ("", 0)])
def test_signals_of_another_model_than_was_trained_are_refused(
    setting: Path, what: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    for shadow in range(SHADOWS):
        after = {"train_loss": 0.5 + shadow, "test_loss": 0.5 + shadow, "train_accuracy": 1.0, "test_accuracy": 1.0}
        changed = after | ({what: value} if what and shadow == 2 else {})
        row = {"shadow": pa.array([shadow], pa.int32())} | {name: [number] for name, number in changed.items()}
        write_table(setting / "models" / f"shadow-{shadow}.parquet", pa.table(row), "training", 1)
        path = setting / "gradient" / f"shadow-{shadow}.parquet"
        table = read_table(path, "signals")
        for name in ("label", "predicted"):
            table = table.append_column(name, pa.array([0] * RECORDS, pa.int32()))
        write_table(path, table, "signals", RECORDS)
    trained = {"models": setting / "models", "training": setting / "training.parquet"}
    assert merge(setting, "gradient", **trained) == (2 if what else 0)
    if what:
        part, kind = what.split("_")
        assert f"{part} {kind} of shadow 2 is {1 if kind == 'accuracy' else 2.5}" in capsys.readouterr().err
