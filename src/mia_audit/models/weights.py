"""Weights on disk: safetensors, written atomically; a pickle is never opened."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

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

TRAINED = "trained"
"""In that JSON: the digest of all that a public model was trained from."""


FACTORS = (".lora_up", ".lora_down")
"""Ends of the names of two factors, whose product is added to the weight of the name before them."""


def completed(start: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a model that stores only its own: they replace those of its start, or are factors of a change."""
    up, down = FACTORS
    whole = dict(start) | {name: value for name, value in own.items() if not name.endswith(FACTORS)}
    for name in (factor.removesuffix(up) for factor in own if factor.endswith(up)):
        whole[name] = start[name] + own[name + up] @ own[name + down]
    return whole


def own_weights(model: nn.Module, start: Mapping[str, Tensor], factors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a model that its start lacks or has otherwise, and the factors instead of what they change."""
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    same = {name for name, value in start.items() if torch.equal(value, state[name])}
    changed = {name.removesuffix(FACTORS[0]) for name in factors}
    return {name: value for name, value in state.items() if name not in same | changed} | dict(factors)


def save_weights(model: nn.Module, path: Path, trained: str = "") -> None:
    """Write the parameters and buffers of an audit's model with their digest; UserError if one is no tensor, as in a quantised model.

    `trained` is the digest of all that a public model was trained from (`identity_of`).
    """
    if odd := [name for name, value in model.state_dict().items() if not isinstance(value, Tensor)]:
        raise UserError(
            f"'{odd[0]}' of the model is no tensor, so that its weights cannot be stored: return the module before it was quantised, or"
            " define save(model, folder) and load(folder)"
        )
    write_weights(model.state_dict(), path, AUDIT_ONLY, trained=trained)


def write_weights(
    weights: Mapping[str, Tensor],
    path: Path,
    notice: str = "",
    start: tuple[Path, Mapping[str, Tensor]] | None = None,
    trained: str = "",
) -> None:
    """Write named tensors with their digest; the same tensors give the same bytes.

    If they are a model's own beside its `start`, that file's name and its tensors' digest are written with them.
    """
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}
    with atomic_write(path) as partial:
        written: dict[str, Any] = {"digest": digest_of(tensors)} | ({"notice": notice} if notice else {})
        written |= {TRAINED: trained} if trained else {}
        if start is not None:
            written["start"] = {"name": start[0].name, "digest": digest_of(start[1])}
        save_file(tensors, partial, {WRITTEN: json.dumps(written)})


def identity_of(path: Path) -> str:
    """Return what initial weights are, the same on every processor.

    For a public model of an audit, whose last bits differ between processors, it is the digest of what the model was
    trained from; for other files, that of the tensors. The tensors themselves are not read: `read_weights` checks them.
    """
    with safe_open(path, framework="pt") as file:
        written = parse_object((file.metadata() or {}).get(WRITTEN, "{}"))
    return str(written.get(TRAINED) or written.get("digest") or digest_of(read_weights(path)))


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
    """Read a model's weights, with those of its start if the file has only its own. Digests are checked if the file has them.

    Raises UserError, which names the file, if it is missing or damaged.
    """
    tensors, written = _read(path)
    start = written.get("start")
    if not start:
        return tensors
    rest = next((place / start["name"] for place in path.absolute().parents if (place / start["name"]).exists()), None)
    known = {} if rest is None else read_weights(rest)
    if digest_of(known) != start["digest"]:
        raise UserError(
            f"{path}: {rest or start['name']}: these are not the weights that its training started from; expected them in a"
            " folder above it, where the audit wrote them"
        )
    return completed(known, tensors)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a file's own weights, and what was written with them."""
    if not path.exists():
        raise UserError(f"{path}: no such file; expected weights in safetensors")
    try:
        with safe_open(path, framework="pt") as file:
            written = parse_object((file.metadata() or {}).get(WRITTEN, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: truncated or not safetensors ({error}). {remedy(path)}") from None
    digest = written.get("digest")
    if digest is not None and digest != digest_of(tensors):
        raise UserError(f"{path}: damaged (the digest of its weights is not the stored one). {remedy(path)}")
    return tensors, written


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
