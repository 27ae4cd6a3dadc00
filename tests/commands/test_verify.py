"""`mia-audit verify` on a small folder of results: every kind of damage is named, and nothing else."""

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mia_audit.cli import main
from mia_audit.models.weights import save_weights
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import write_pool
from mia_audit.storage import sha256, write_table
from mia_audit.training.stored import write_training

MODELS = "digits/vit/none-epsinf/models"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    section = Dataset(source="digits", records=4, public=3)
    write_pool(
        build_pool(pools["digits"].load(section, "datasets.digits"), section, "digits", 0),
        tmp_path / "pools" / "digits",
    )
    table = pa.table({"shadow": np.array([0, 1], dtype=np.int32)})
    write_table(tmp_path / "digits/vit/none-epsinf/training.parquet", table, "training", 2)
    for shadow in range(2):
        save_weights(nn.Linear(3, 2), tmp_path / MODELS / f"shadow-{shadow}" / "weights.safetensors")
        write_training(tmp_path / MODELS, shadow, "key", table.slice(shadow, 1))
    return tmp_path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def test_whole_results_are_whole(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / MODELS / ".left.partial.parquet").write_bytes(b"half")
    assert main(["verify", "--unfinished", str(results)]) == 0
    assert capsys.readouterr().out.startswith(f"9 files of {results} match their digests; without a list")


@pytest.mark.parametrize("damage", [flip, truncate])
@pytest.mark.parametrize("name", ["shadow-1/weights.safetensors", "training.parquet", "records.npy", "public.parquet"])
def test_damage_is_named(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    damage(next(path for path in results.rglob("*") if path.as_posix().endswith(name)))
    assert main(["verify", "--unfinished", str(results)]) == 2
    error = capsys.readouterr().err
    assert name.partition(".")[0] in error
    assert error.count("\n") == 1
    assert "and run again" in error


def test_a_model_that_is_gone_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / MODELS / "shadow-1" / "weights.safetensors").unlink()
    assert main(["verify", "--unfinished", str(results)]) == 2
    assert "shadow-1/weights.safetensors: missing" in capsys.readouterr().err


def test_damaged_weights_are_trained_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(results / MODELS / "shadow-0" / "weights.safetensors")
    truncate(results / MODELS / "shadow-1" / "weights.safetensors")
    assert main(["verify", "--unfinished", str(results)]) == 2
    told = capsys.readouterr()
    assert "shadow-0/weights.safetensors: damaged" in told.out + told.err
    assert f" Delete {results / MODELS / '.jobs'} and run again" in told.out + told.err
    assert "3 more above" in told.err
    assert "shadow-1/weights.safetensors: truncated" in told.out + told.err


def test_a_folder_without_results_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--unfinished", str(tmp_path)]) == 2
    assert "no tables or models there" in capsys.readouterr().err


@pytest.fixture
def listed(results: Path) -> Path:
    """Finished results: with a page, its provenance, a CSV file, logs, and the list of them all."""
    (results / "tables").mkdir()
    (results / "logs").mkdir()
    (results / "logs" / "pool.log").write_text("said")
    (results / "tables" / "settings.csv").write_text("auc\n0.5\n")
    (results / "report.html").write_text("<!DOCTYPE html>")
    table = next(results.rglob("training.parquet"))
    inputs = {table.relative_to(results).as_posix(): sha256(table)}
    pages = {"report.html": sha256(results / "report.html")}
    (results / "provenance.json").write_text(json.dumps({"inputs_sha256": inputs, "page_sha256": pages}))
    assert main(["manifest", "--results", str(results)]) == 0
    return results


def check(results: Path, *more: str) -> int:
    return main(["verify", str(results), *more])


def test_listed_results_verify_and_have_a_root_hash(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (listed / "logs" / "later.log").write_text("not handed on")
    (listed / "SHA256SUMS.minisig").write_text("minisign's signature of the list")
    assert check(listed) == 0
    out = capsys.readouterr().out
    assert f"root hash {hashlib.sha256((listed / 'SHA256SUMS').read_bytes()).hexdigest()}" in out
    assert "logs" not in (listed / "SHA256SUMS").read_text()
    done = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=listed)
    assert done.returncode == 0


def relisted_table(results: Path) -> None:
    """Change a number and write the table anew, digest and all."""
    path = results / "digits/vit/none-epsinf/training.parquet"
    write_table(path, pa.table({"shadow": np.array([0, 0], dtype=np.int32)}), "training", 2)


def zeroed_weights(results: Path) -> None:
    """Write weights of zero, without a digest."""
    save_file(
        {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, results / MODELS / "shadow-0" / "weights.safetensors"
    )


def bare_pool(results: Path) -> None:
    """Write a pool whose table says nothing of its array's digest."""
    path = results / "pools" / "digits" / "records.parquet"
    table = pq.read_table(path)
    kept = {key: value for key, value in table.schema.metadata.items() if key != b"mia_audit.sha256"}
    metadata = json.loads(kept[b"mia_audit.metadata"])
    del metadata["array_sha256"]
    write_table(path, table.replace_schema_metadata(None), "records", len(table), metadata)


FORGERIES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a number changed and listed anew": (
        relisted_table,
        "training.parquet: does not match its digest in provenance.json",
    ),
    "weights zeroed without digest": (zeroed_weights, "does not contain the digest that an audit writes"),
    "a pool without digest": (bare_pool, "does not hold the digest of this file"),
    "the page edited": (
        lambda r: (r / "report.html").write_text("safe"),
        "report.html: does not match its digest in provenance",
    ),
    "a CSV file edited": (
        lambda r: (r / "tables" / "settings.csv").write_text("auc\n0.4\n"),
        "settings.csv: changed since",
    ),
    "a file deleted": (
        lambda r: (r / "tables" / "settings.csv").unlink(),
        "settings.csv: missing, but SHA256SUMS lists it",
    ),
    "an input deleted": (
        lambda r: (r / "digits/vit/none-epsinf/training.parquet").unlink(),
        "training.parquet: missing, but provenance",
    ),
    "a file added": (lambda r: (r / "tables" / "more.csv").write_text("1"), "more.csv: not in SHA256SUMS"),
    "a link added": (lambda r: (r / "tables" / "more.csv").symlink_to("/etc/passwd"), "a link, or not a regular file"),
    "the list a link": (
        lambda r: ((r / "SHA256SUMS").rename(r.parent / "sums"), (r / "SHA256SUMS").symlink_to("../sums")),
        "SHA256SUMS: a link, or not a regular file",
    ),
    "the list deleted": (lambda r: (r / "SHA256SUMS").unlink(), "no SHA256SUMS"),
    "the list damaged": (lambda r: (r / "SHA256SUMS").write_text("../x"), "SHA256SUMS, line 1: damaged"),
    "provenance damaged": (lambda r: (r / "provenance.json").write_text("[]"), "provenance.json: damaged"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_audit_does_not_verify(listed: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    forge, words = FORGERIES[name]
    forge(listed)
    assert check(listed) == 2
    told = capsys.readouterr()
    assert words in told.out + told.err
    assert told.err.count("\n") == 1
    assert "root hash" not in told.out
