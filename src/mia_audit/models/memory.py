"""The memory that a record takes in a model's pass, and how many records fit on a GPU at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from mia_audit.models.architecture import construct
from mia_audit.runtime.memory import fitting


def batch_for(architecture: Mapping[str, Any], most: int, device: str) -> int:
    """Return how many records to hold at once: `most`, or on a GPU as many as fit by what one record's pass keeps."""
    if device == "cpu":
        return most
    free, _ = torch.cuda.mem_get_info()
    return fitting(most, activation_bytes(architecture), free)


def activation_bytes(architecture: Mapping[str, Any]) -> int:
    """Return the bytes that one record's forward pass keeps for its backward pass, beside what the model holds anyway."""
    model = construct(architecture, seed=0)
    saved: list[int] = []
    own = (*model.parameters(), *model.buffers())
    with _counting(saved, {value.untyped_storage().data_ptr() for value in own}):
        model(torch.zeros(1, *architecture["input_shape"]).requires_grad_())
    return sum(saved)


@contextmanager
def _counting(saved: list[int], skip: set[int]) -> Iterator[None]:
    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in skip:
            saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
