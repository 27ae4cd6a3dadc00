"""When memory runs out: half as many records at once, and again, until they fit. All passes of models are tried here."""

import sys
from collections.abc import Callable
from typing import TypeVar

import torch

from mia_audit.compute.repeat import cannot_repeat, let_be
from mia_audit.errors import UserError

SHARE = 0.8
"""Share of a card's free memory that a batch may take by what one record's pass keeps."""

Result = TypeVar("Result")


class Halving:
    """How many records are held at once: at most `most`, halved whenever memory runs out, and never raised again."""

    def __init__(self, most: int) -> None:
        self.size = most

    def __call__(self, attempt: Callable[[int], Result]) -> Result:
        """Return what `attempt` returns for a size; it starts afresh, at half the size, when memory runs out.

        Sums over smaller pieces are the same but for rounding. An attempt that cannot be repeated bit for bit starts afresh
        too. Raises UserError where one record does not fit.
        """
        while True:
            try:
                return attempt(self.size)
            except RuntimeError as error:  # left before memory is given back: the traceback holds what was computed
                if not tried_again(error):
                    raise
                full = out_of_memory(error)
                if not full:
                    let_be(error)
            if full:
                self._halve()

    def _halve(self) -> None:
        if self.size == 1:
            raise UserError(
                "one record does not fit in memory: choose a smaller model or image size, or another compute.device"
            )
        self.size //= 2
        print(f"out of memory: {self.size} records at once from here on", file=sys.stderr, flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def tried_again(error: Exception) -> bool:
    """Whether an attempt that ends in this error starts afresh: whoever catches errors of a model's pass has to raise it again."""
    return isinstance(error, RuntimeError) and (out_of_memory(error) or cannot_repeat(error))


SAID = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
"""How the machine, the driver, and a card's libraries of products and convolutions say it."""


def out_of_memory(error: RuntimeError) -> bool:
    """Whether an error says that a card or the machine had no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in SAID)


def fitting(most: int, record_bytes: int, free_bytes: int) -> int:
    """Return how many records, a power of two below `most` or `most` itself, fit in the free memory of a card."""
    fits = int(SHARE * free_bytes) // max(record_bytes, 1)
    return most if fits >= most else max(1, 1 << (fits.bit_length() - 1)) if fits else 1
