"""Weights on disk: checked against the digest that they carry."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from mia_audit.errors import UserError
from mia_audit.models.weights import digest_of, load_weights, save_weights


def test_no_flipped_bit_of_the_numbers_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.with_suffix(".json").touch()  # the audit made it: it writes it again
    save_weights(nn.Linear(2, 2), path)
    sound = path.read_bytes()
    for place in range(len(sound) - 24, len(sound)):
        changed = bytearray(sound)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"w\.safetensors: damaged .* Delete it and run again"):
            load_weights(nn.Linear(2, 2), path)


def test_weights_of_a_shadow_model_are_made_again_by_their_job(tmp_path: Path) -> None:
    path = tmp_path / "shadow-0" / "weights.safetensors"
    save_weights(nn.Linear(2, 2), path)
    (tmp_path / "shadow-0.parquet").touch()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        UserError,
        match=r"shadow-0/weights\.safetensors: truncated .* Delete .*\.jobs and run again: mia-audit run CONFIG -- --forcerun",
    ):
        load_weights(nn.Linear(2, 2), path)


def test_nobody_is_told_to_delete_weights_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"no tensors")
    with pytest.raises(
        UserError, match=r"w\.safetensors: truncated or not safetensors .* Expected weights as safetensors"
    ):
        load_weights(nn.Linear(2, 2), tmp_path / "w.safetensors")


def test_weights_from_elsewhere_need_no_digest(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    other = nn.Linear(2, 2)
    load_weights(other, tmp_path / "w.safetensors")
    assert torch.equal(other.weight, model.weight)


def test_a_digest_is_of_names_types_shapes_and_bytes() -> None:
    one = {"a": torch.zeros(4)}
    others = [{"b": torch.zeros(4)}, {"a": torch.zeros(2, 2)}, {"a": torch.zeros(4).int()}, {"a": torch.ones(4)}]
    assert len({digest_of(tensors) for tensors in (one, *others)}) == 5
    assert digest_of({"a": torch.zeros(4), "c": torch.ones(0)}) == digest_of({"c": torch.ones(0), "a": torch.zeros(4)})


def test_weights_of_an_audit_say_what_they_are_for(tmp_path: Path) -> None:
    """Their noise can be recomputed by whoever reads the seed in the report."""
    save_weights(nn.Linear(2, 2), tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        written = json.loads(file.metadata()["mia-audit"])
    assert written["notice"].startswith("for audit only: whoever knows the seed")
