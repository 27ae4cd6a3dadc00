"""The device on which a process computes, and its number of threads.

Batch sizes that adapt to memory: a pass through a model is retried with half the records until it fits.

Make results repeatable bit for bit, by turning off GPU kernels that add numbers in the order in which threads finish.

Reduced precision for speed: TF32 products, or bfloat16 autocast with float32 from the last layer on.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from mia_audit.errors import UserError, first_line
from mia_audit.sections import Precision

# with AMX, NaN in a row of bf16 gets into the row before it; oneDNN reads this before its first product
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
NOT_DETERMINISTIC = "does not have a deterministic implementation"
"""Part of torch's error message for an operation that has no deterministic kernel."""


def make_deterministic() -> None:
    """Make this process's GPU kernels deterministic; call it before the first matrix product.

    Operations without a deterministic kernel raise RuntimeError from then on.
    """
    os.environ.setdefault(WORKSPACE, ":4096:8")
    switches: Any = torch.utils.deterministic
    # nothing here reads uninitialised memory, so filling it would only cost time
    switches.fill_uninitialized_memory = False
    # the backward pass of fused attention is deterministic only in the mode "error"
    torch.set_deterministic_debug_mode("error")


def allow_nondeterminism(error: RuntimeError) -> None:
    """Allow nondeterministic operations from here on, and print the name of the operation that needs this to stderr."""
    torch.set_deterministic_debug_mode("warn")
    operation = first_line(error).partition(f" {NOT_DETERMINISTIC}")[0]
    print(
        f"{operation} has no deterministic kernel on this GPU: results of a rerun may differ by rounding errors",
        file=sys.stderr,
    )


def device_for(threads: int, wanted: str = "auto") -> str:
    """Set this process's number of threads and return its torch device, `cpu` or a deterministic `cuda`.

    `wanted` is the config's `compute.device`. `acquire_gpu` has made a numbered GPU the only visible one, so its name
    is `cuda` too. Raises UserError if a GPU is requested but torch finds none.
    """
    torch.set_num_threads(threads)
    available = torch.cuda.is_available()
    if wanted.startswith("cuda") and not available:
        raise UserError(f"compute.device: {wanted} was requested, but torch finds no GPU: `mia-audit check` says why")
    if not available or wanted == "cpu":
        return "cpu"
    make_deterministic()
    return "cuda"


SHARE = 0.8
"""Largest share of a GPU's free memory for the activations of a batch."""

Result = TypeVar("Result")


class AdaptiveBatchSize:
    """A batch size of at most `most` records, halved whenever memory runs out and never raised again.

    `whole` names what computes something of all records of a batch, which must therefore not be divided; empty if nothing does.
    """

    def __init__(self, most: int, whole: str = "") -> None:
        self.size, self.whole = most, whole

    def __call__(self, attempt: Callable[[int], Result]) -> Result:
        """Return `attempt(size)`. When memory runs out, try again with half the size.

        Sums over smaller batches differ only by rounding. An attempt that needs an operation without a deterministic
        kernel is repeated at the same size with nondeterminism allowed. Raises UserError if a single record does not
        fit, or a batch that must be whole.
        """
        while True:
            try:
                return attempt(self.size)
            except RuntimeError as error:  # halve outside this block, because the traceback keeps tensors alive
                if not is_retryable(error):
                    raise
                full = out_of_memory(error)
                if not full:
                    allow_nondeterminism(error)
            if full:
                self._halve()

    def _halve(self) -> None:
        if self.whole:
            raise UserError(
                f"{self.size} records do not fit in memory, and {self.whole} needs the whole batch: choose a smaller training.batch"
                " or model, or another compute.device"
            )
        if self.size == 1:
            raise UserError(
                "one record does not fit in memory: choose a smaller model or image, or another compute.device"
            )
        self.size //= 2
        print(f"out of memory: continuing with {self.size} records at once", file=sys.stderr, flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def is_retryable(error: Exception) -> bool:
    """Return whether `AdaptiveBatchSize` retries after this error; code that catches a model's errors must re-raise it."""
    return isinstance(error, RuntimeError) and (out_of_memory(error) or NOT_DETERMINISTIC in str(error))


OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""Messages of the allocator, the CUDA driver, and cuBLAS or cuDNN when memory runs out."""


def out_of_memory(error: RuntimeError) -> bool:
    """Return whether the error means that the GPU or the machine ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or any(part in str(error) for part in OUT_OF_MEMORY_MESSAGES)


def fitting(most: int, record_bytes: int, free_bytes: int) -> int:
    """Return the number of records that fit in a GPU's free memory: `most`, or the largest smaller power of two that fits."""
    fits = int(SHARE * free_bytes) // max(record_bytes, 1)
    return most if fits >= most else max(1, 1 << (fits.bit_length() - 1)) if fits else 1


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
    """Run the last linear layer without autocast, on features of the weights' type."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not layers:
        yield
        return
    head: Any = layers[-1]
    plain = head.forward

    def exact(features: Tensor) -> Tensor:
        with torch.autocast(_device(model), enabled=False):
            logits: Tensor = plain(features.to(head.weight.dtype))
        return logits

    head.forward = exact
    try:
        yield
    finally:
        del head.forward


def _device(model: nn.Module) -> str:
    return next((parameter.device.type for parameter in model.parameters()), "cpu")
