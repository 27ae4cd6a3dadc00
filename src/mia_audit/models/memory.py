"""The memory that a pass through a model takes per record, and the number of records that fit on a GPU at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mia_audit.runtime.memory import fitting


def batch_for(architecture: Mapping[str, Any], most: int, device: str) -> int:
    """Return how many records to process at once: `most`, or on a GPU as many as fit, given the memory that one record's pass keeps."""
    if device == "cpu":
        return most
    free, _ = torch.cuda.mem_get_info()
    return fitting(most, architecture["activation_bytes"], free)


def pass_of_one_record(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """Return a model's logits for a record of zeros, and the bytes that the forward pass keeps for the backward pass.

    Tensors of the model itself, such as its parameters, are not counted.
    """
    saved: list[int] = []
    own = (*model.parameters(), *model.buffers())
    with _counting(saved, {value.untyped_storage().data_ptr() for value in own}):
        logits = model(torch.zeros(1, *input_shape).requires_grad_())
    return logits.detach(), sum(saved)


@contextmanager
def _counting(saved: list[int], skip: set[int]) -> Iterator[None]:
    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in skip:
            saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
