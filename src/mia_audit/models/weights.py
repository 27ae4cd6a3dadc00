"""Weights on disk: safetensors, written whole or not at all; a pickle is never opened."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.storage import replacing

DIGEST = "digest"
"""Key of a file's metadata under which its weights' digest stands; weights from elsewhere have none."""


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's parameters and buffers with their digest; the same weights give the same bytes."""
    write_weights(model.state_dict(), path)


def write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors with their digest; the same ones give the same bytes."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    with replacing(path) as partial:
        save_file(tensors, partial, {DIGEST: digest_of(tensors)})


def load_weights(model: nn.Module, path: Path) -> None:
    """Load weights into a model of the same architecture; a missing, damaged or foreign file is a UserError that names it."""
    tensors = read_weights(path)
    if odd := misfit(tensors, model):
        raise UserError(f"{path}: weights of another architecture: {odd}. Delete it and run again")
    model.load_state_dict(tensors)


def misfit(tensors: Mapping[str, Tensor], model: nn.Module, optional: Collection[str] = ()) -> str:
    """Say how tensors differ from the model's weights by name or shape, nothing where they do not; optional ones may be missing."""
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    needed = {name: shape for name, shape in expected.items() if name not in optional or name in found}
    odd = Counter(needed.items()) - Counter(found.items()) or Counter(found.items()) - Counter(needed.items())
    return f"'{min(odd)[0]}' differs from the model's" if odd else ""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read weights, and check them where they carry a digest; a missing or damaged file is a UserError that names it."""
    if not path.exists():
        raise UserError(f"{path}: no such file; expected weights in safetensors")
    try:
        with safe_open(path, framework="pt") as file:
            digest = (file.metadata() or {}).get(DIGEST)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: truncated or not safetensors ({error}). {_mend(path)}") from None
    if digest is not None and digest != digest_of(tensors):
        raise UserError(f"{path}: damaged (its weights are not those that were written). {_mend(path)}")
    return tensors


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors on the CPU: their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():
            digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _mend(path: Path) -> str:
    """What to do about a bad file: the models of a block were trained by one job, and are trained again by one."""
    whole_block = path.with_name("training.parquet").exists()
    return f"Delete {f'the folder {path.parent}' if whole_block else 'it'} and run again"
