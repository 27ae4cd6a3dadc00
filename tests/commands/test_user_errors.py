"""Pools, weights and descriptions that do not belong together are one line and exit code 2 from the commands that train."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from ..builders import Trap, change_table, one_line, run

MODEL = {"model": "mlp", "parameters": {"width": 4}}
SPECS: dict[str, dict[str, Any]] = {
    "pool": {"seed": 0, "name": "mine", "dataset": {"source": "breast_cancer", "records": 60, "public": 20}},
    "membership": {"seed": 0, "dataset": "mine", "membership": {"models": 4}},
    "architecture": {"name": "net", "architecture": MODEL},
    "pretrain": {"seed": 0, "dataset": "mine", "architecture": "net", "pretraining": {"epochs": 1, "batch": 4}},
    "train": {
        "seed": 0,
        "dataset": "mine",
        "architecture": "net",
        "training": {"epochs": 1, "batch": 4},
        "mechanism": {"mechanism": "none"},
        "mechanism_name": "none",
        "epsilon": "inf",
    },
    "weights": {"name": "net"},
}


def call(command: str, changes: dict[str, Any] | None = None, **options: Any) -> int:
    return run(command, spec=SPECS[command] | (changes or {}), **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool with its membership, a description of a model, and one of another with weights."""
    folder = tmp_path_factory.mktemp("made")
    pool = folder / "pool"
    assert call("pool", out=pool) == 0
    assert call("membership", records=pool / "records.parquet", out=pool / "membership.parquet") == 0
    assert call("architecture", pool=pool, out=folder / "net.json") == 0
    wider = {"architecture": MODEL | {"parameters": {"width": 5}}}
    assert call("architecture", wider, pool=pool, out=folder / "wider.json") == 0
    assert call("pretrain", pool=pool, architecture=folder / "wider.json", out=folder / "other.safetensors") == 0
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "here"))


@pytest.fixture
def fails(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that calls a command in vain, and returns the line."""

    def call_in_vain(command: str, changes: dict[str, Any] | None = None, **options: Any) -> str:
        out = here / "out" / {"train": "models"}.get(command, "start.safetensors")
        given = {"architecture": here / "net.json"} | ({"pool": here / "pool"} if command != "weights" else {})
        given |= {"shadows": "0-1"} if command == "train" else {}
        capsys.readouterr()
        assert call(command, changes, **given | options, out=out) == 2
        told = one_line(capsys)
        assert told.startswith("mia-audit: "), told
        assert not out.parent.exists() or not list(out.parent.iterdir())
        return told

    return call_in_vain


@pytest.mark.parametrize("label", [2, -1])
def test_a_label_outside_the_pools_classes(label: int, here: Path, fails: Callable[..., str]) -> None:
    fifth = pl.when(pl.col("record") == 5).then(pl.lit(label, pl.Int32)).otherwise("label")
    change_table(here / "pool" / "records.parquet", "records", label=fifth)
    assert f".parquet: record 5 has the label {label}, but" in fails("train")
    change_table(here / "pool" / "public.parquet", "records", label=fifth)
    assert f"public.parquet: record 5 has the label {label}" in fails("pretrain")


def test_a_pool_that_another_tool_left_incomplete(here: Path, fails: Callable[..., str]) -> None:
    path = here / "pool" / "records.parquet"
    change_table(path, "records", {"array_sha256": None})
    np.save(here / "pool" / "records.npy", np.zeros((60, 7), np.float32))
    assert "[30], but records.npy beside it has [7]" in fails("train")
    change_table(path, "records", {"classes": None})
    assert "'classes' is missing from the table's" in fails("train")


def test_the_membership_of_another_pool(here: Path, fails: Callable[..., str]) -> None:
    out = here / "pool" / "membership.parquet"
    assert call("membership", records=here / "pool" / "public.parquet", out=out) == 0
    assert "20 records; the pool has 60. Delete" in fails("train")


def test_a_description_that_is_missing_or_none(here: Path, fails: Callable[..., str]) -> None:
    assert "none.json: no such file; expected" in fails("train", architecture=here / "none.json")
    (here / "empty.json").write_text("{}")
    assert "empty.json: the key 'learner' is" in fails("pretrain", architecture=here / "empty.json")


def test_weights_to_start_from_that_are_no_start(here: Path, fails: Callable[..., str]) -> None:
    other = here / "other.safetensors"
    assert "other.safetensors: weights of another" in fails("train", public=other)
    assert "no.safetensors: no such file" in fails("train", public=here / "no.safetensors")
    other.write_bytes(other.read_bytes()[:-9])
    assert "truncated or not safetensors" in fails("train", public=other)


def test_weights_of_a_file_that_are_none(here: Path, fails: Callable[..., str]) -> None:
    def given(path: Path) -> str:
        told = fails("weights", {"pretrained": str(path)})
        assert told.startswith(f"mia-audit: architectures.net.pretrained: {path}: ")
        return told

    trap = Trap(here / "sprung")
    torch.save({"a": trap}, here / "code.pth")
    (here / "code.safetensors").write_bytes(pickle.dumps(trap))
    assert "none of its code was run" in given(here / "code.pth")
    assert "truncated, or not safetensors" in given(here / "code.safetensors")
    assert "no such file; expected weights" in given(here / "no.pth")
    assert "weights of another architecture" in given(here / "other.safetensors")
    broken = {name: value * torch.nan for name, value in load_file(here / "other.safetensors").items()}
    save_file(broken, here / "nan.safetensors")
    (here / "wider.json").replace(here / "net.json")
    assert "holds numbers that are not finite" in given(here / "nan.safetensors")
    assert not (here / "sprung").exists()


def test_a_model_that_does_not_fit_the_pool_is_named_by_its_key(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vit = {"architecture": {"model": "vision_transformer"}}
    assert call("architecture", vit, pool=here / "pool", out=here / "vit.json") == 2
    assert capsys.readouterr().err.startswith("mia-audit: architectures.net: model 'vision_transformer'")
    assert not (here / "vit.json").exists()
