"""Batch sizes that adapt to memory: a pass through a model is retried with half the records until it fits."""

import sys
from collections.abc import Callable
from typing import TypeVar

import torch

from mia_audit.errors import UserError
from mia_audit.runtime.determinism import allow_nondeterminism, lacks_deterministic_kernel

SHARE = 0.8
"""Largest share of a GPU's free memory for the activations of a batch."""

Result = TypeVar("Result")


class AdaptiveBatchSize:
    """A batch size of at most `most` records, halved whenever memory runs out and never raised again."""

    def __init__(self, most: int) -> None:
        self.size = most

    def __call__(self, attempt: Callable[[int], Result]) -> Result:
        """Return `attempt(size)`. When memory runs out, try again with half the size.

        Sums over smaller batches differ only by rounding. An attempt that needs an operation without a deterministic
        kernel is repeated at the same size with nondeterminism allowed. Raises UserError if a single record does not
        fit.
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
        if self.size == 1:
            raise UserError(
                "one record does not fit in memory: choose a smaller model or image size, or another compute.device"
            )
        self.size //= 2
        print(f"out of memory: continuing with {self.size} records at once", file=sys.stderr, flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def is_retryable(error: Exception) -> bool:
    """Return whether `AdaptiveBatchSize` retries after this error; code that catches a model's errors must re-raise it."""
    return isinstance(error, RuntimeError) and (out_of_memory(error) or lacks_deterministic_kernel(error))


OUT_OF_MEMORY_MESSAGES = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""Messages of the allocator, the CUDA driver, and cuBLAS or cuDNN when memory runs out."""


def out_of_memory(error: RuntimeError) -> bool:
    """Return whether the error means that the GPU or the machine ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or any(part in str(error) for part in OUT_OF_MEMORY_MESSAGES)


def fitting(most: int, record_bytes: int, free_bytes: int) -> int:
    """Return the number of records that fit in a GPU's free memory: `most`, or the largest smaller power of two that fits."""
    fits = int(SHARE * free_bytes) // max(record_bytes, 1)
    return most if fits >= most else max(1, 1 << (fits.bit_length() - 1)) if fits else 1
