"""`mia-audit verify` on a small folder of results: every kind of damage is named, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from torch import nn

from mia_audit.cli import main
from mia_audit.models import save_weights
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import write_pool
from mia_audit.storage import write_table

BLOCK = "digits/vit/none-epsinf/models/000-001"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    section = Dataset(source="digits", records=4, public=3)
    write_pool(
        build_pool(pools["digits"].load(section, "datasets.digits"), section, "digits", 0),
        tmp_path / "pools" / "digits",
    )
    table = pa.table({"shadow": np.array([0, 1], dtype=np.int32)})
    write_table(tmp_path / BLOCK / "training.parquet", table, "training", 2)
    for shadow in range(2):
        save_weights(nn.Linear(3, 2), tmp_path / BLOCK / f"shadow-{shadow}" / "weights.safetensors")
    return tmp_path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def test_whole_results_are_whole(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / BLOCK / ".left.partial.parquet").write_bytes(b"half")
    assert main(["verify", "--results", str(results)]) == 0
    assert capsys.readouterr().out == f"7 files of {results} are as they were written\n"


@pytest.mark.parametrize("damage", [flip, truncate])
@pytest.mark.parametrize("name", ["shadow-1/weights.safetensors", "training.parquet", "records.npy", "public.parquet"])
def test_damage_is_named(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    damage(next(path for path in results.rglob("*") if path.as_posix().endswith(name)))
    assert main(["verify", "--results", str(results)]) == 2
    error = capsys.readouterr().err
    assert name.partition(".")[0] in error
    assert error.count("\n") == 1
    assert "and run again" in error


def test_a_model_that_is_gone_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / BLOCK / "shadow-1" / "weights.safetensors").unlink()
    assert main(["verify", "--results", str(results)]) == 2
    assert "shadow-1: no model there, but training.parquet beside it describes" in capsys.readouterr().err


def test_damaged_weights_are_mended_with_their_block(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(results / BLOCK / "shadow-0" / "weights.safetensors")
    truncate(results / BLOCK / "shadow-1" / "weights.safetensors")
    assert main(["verify", "--results", str(results)]) == 2
    told = capsys.readouterr()
    assert (
        "shadow-0/weights.safetensors: damaged (the digest of its weights differs from the one it was written with)."
        f" Delete the folder {results / BLOCK} and run again" in told.err
    )
    assert "1 more above" in told.err
    assert "shadow-1/weights.safetensors: truncated" in told.out


def test_a_folder_without_results_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--results", str(tmp_path)]) == 2
    assert "no tables or models there" in capsys.readouterr().err
