"""Weights on disk: safetensors, written whole or not at all; a pickle is never opened."""

from collections import Counter
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from mia_audit.errors import UserError
from mia_audit.storage import replacing


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's parameters and buffers; the same weights give the same bytes."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    with replacing(path) as partial:
        save_file(tensors, partial)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load weights into a model of the same architecture; a missing, truncated or foreign file is a UserError that names it."""
    if not path.exists():
        raise UserError(f"{path}: no such file; expected weights in safetensors")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: truncated or not safetensors ({error}). Delete it and run again") from None
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if expected != found:
        odd = sorted(
            Counter(expected.items()) - Counter(found.items()) or Counter(found.items()) - Counter(expected.items())
        )
        raise UserError(
            f"{path}: weights of another architecture: '{odd[0][0]}' differs from the model's. Delete it and run again"
        )
    model.load_state_dict(tensors)
