"""Reduced precision for speed: TF32 products, or bfloat16 autocast with float32 from the last layer on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mia_audit.sections import Precision


@contextmanager
def computing(model: nn.Module, precision: Precision) -> Iterator[None]:
    """Run a model's forward and backward passes in a precision within this context; restore the previous one afterwards.

    `float32` is full float32 even on a GPU, where convolutions would use TF32 by default. `tf32` rounds the factors of
    products to 10 bits of mantissa on GPUs that support it, and changes nothing on other devices. `bf16` is autocast;
    the last linear layer runs in float32, because many logits would be equal with 8 bits of mantissa.
    """
    cudnn: Any = torch.backends.cudnn
    backends: list[Any] = [torch.backends.cuda.matmul, cudnn.conv]
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        if precision == "bf16":
            with torch.autocast(_device(model), dtype=torch.bfloat16, cache_enabled=False), _exact_head(model):
                yield
        else:
            yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value


@contextmanager
def _exact_head(model: nn.Module) -> Iterator[None]:
    """Run the last linear layer without autocast, on float32 features."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        yield
        return
    head: Any = layers[-1]
    plain = head.forward

    def exact(features: Tensor) -> Tensor:
        with torch.autocast(_device(model), enabled=False):
            logits: Tensor = plain(features.float())
        return logits

    head.forward = exact
    try:
        yield
    finally:
        del head.forward


def _device(model: nn.Module) -> str:
    return next((parameter.device.type for parameter in model.parameters()), "cpu")
