"""Weights on disk: safetensors, written atomically; a pickle is never opened."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_object
from mia_audit.seeds import AUDIT_ONLY
from mia_audit.storage import atomic_write
from mia_audit.storage.tables import RETRAIN, STAMPS

WEIGHTS = "weights.safetensors"
"""The file of a model's weights in the folder of a shadow model."""

WRITTEN = "mia-audit"
"""The key of a file's metadata, whose value is JSON with the weights' digest and a notice.

There is no other key, because safetensors orders several keys at random.
"""


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the parameters and buffers of an audit's model with their digest; the same weights give the same bytes."""
    write_weights(model.state_dict(), path, AUDIT_ONLY)


def write_weights(weights: Mapping[str, Tensor], path: Path, notice: str = "") -> None:
    """Write named tensors with their digest; the same tensors give the same bytes."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    with atomic_write(path) as partial:
        written = {"digest": digest_of(tensors)} | ({"notice": notice} if notice else {})
        save_file(tensors, partial, {WRITTEN: json.dumps(written)})


def load_weights(model: nn.Module, path: Path) -> None:
    """Load weights into a model of the same architecture. Raises UserError, which names the file, if it is missing, damaged or for another model."""
    tensors = read_weights(path)
    if odd := misfit(tensors, model):
        raise UserError(f"{path}: weights of another architecture: {odd}. {remedy(path)}")
    model.load_state_dict(tensors)


def misfit(tensors: Mapping[str, Tensor], model: nn.Module, optional: Collection[str] = ()) -> str:
    """Describe how tensors differ from a model's weights in name or shape; the text is empty if they do not. Optional tensors may be missing."""
    given = {name: tuple(value.shape) for name, value in tensors.items()}
    expected = {
        name: given.get(name, ()) if is_lazy(value) else tuple(value.shape)
        for name, value in model.state_dict().items()
    }
    needed = {name: shape for name, shape in expected.items() if name not in optional or name in given}
    odd = Counter(needed.items()) - Counter(given.items()) or Counter(given.items()) - Counter(needed.items())
    return f"'{min(odd)[0]}' differs from the model's" if odd else ""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read weights, and check their digest if the file has one. Raises UserError, which names the file, if it is missing or damaged."""
    if not path.exists():
        raise UserError(f"{path}: no such file; expected weights in safetensors")
    try:
        with safe_open(path, framework="pt") as file:
            digest = parse_object((file.metadata() or {}).get(WRITTEN, "{}")).get("digest")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: truncated or not safetensors ({error}). {remedy(path)}") from None
    if digest is not None and digest != digest_of(tensors):
        raise UserError(f"{path}: damaged (the digest of its weights is not the stored one). {remedy(path)}")
    return tensors


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors on the CPU: their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        if value.numel():
            digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def remedy(path: Path) -> str:
    """Return what to do about an invalid file of weights. An audit retrains a model whose weights differ from its table."""
    if path.parent.with_suffix(".parquet").exists():
        return f"Delete {path.parent.parent / STAMPS} and run again: {RETRAIN}"
    return "Delete it and run again" if path.with_suffix(".json").exists() else "Expected weights as safetensors"
