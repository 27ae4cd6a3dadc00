"""Where a process computes, and with how many threads."""

from collections.abc import Mapping
from typing import Any

import torch

from mia_audit.compute.memory import fitting
from mia_audit.compute.repeat import repeat_exactly
from mia_audit.errors import UserError


def device_for(threads: int, wanted: str = "auto") -> str:
    """Pin this process's threads and name its device, which repeats itself; `wanted` is the config's compute.device.

    A numbered card is the only one that this process sees, and so the first. Raises UserError where a card is asked for
    and torch has none.
    """
    torch.set_num_threads(threads)
    available = torch.cuda.is_available()
    if wanted.startswith("cuda") and not available:
        raise UserError(
            f"compute.device: {wanted} was asked for, but torch sees no card here: mia-audit doctor says why"
        )
    if not available or wanted == "cpu":
        return "cpu"
    repeat_exactly()
    return "cuda"


def batch_for(architecture: Mapping[str, Any], most: int, device: str) -> int:
    """Return how many records to hold at once: `most`, or on a card as many as fit by what one record's pass keeps."""
    if device == "cpu":
        return most
    from mia_audit.planning.costs import activation_bytes

    free, _ = torch.cuda.mem_get_info()
    return fitting(most, activation_bytes(architecture), free)
