"""Make results repeatable bit for bit, by turning off GPU kernels that add numbers in the order in which threads finish."""

import os
import sys
from typing import Any

import torch
import torch.utils.deterministic

from mia_audit.errors import first_line

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
NOT_DETERMINISTIC = "does not have a deterministic implementation"
"""Part of torch's error message for an operation that has no deterministic kernel."""


def make_deterministic() -> None:
    """Make this process's GPU kernels deterministic; call it before the first matrix product.

    Operations without a deterministic kernel raise RuntimeError from then on.
    """
    os.environ.setdefault(WORKSPACE, ":4096:8")
    switches: Any = torch.utils.deterministic
    switches.fill_uninitialized_memory = (
        False  # nothing here reads uninitialised memory, so filling it would only cost time
    )
    # the backward pass of fused attention is deterministic only in the mode "error"
    torch.set_deterministic_debug_mode("error")


def lacks_deterministic_kernel(error: RuntimeError) -> bool:
    """Return whether an operation raised because it has no deterministic kernel."""
    return NOT_DETERMINISTIC in str(error)


def allow_nondeterminism(error: RuntimeError) -> None:
    """Allow nondeterministic operations from here on, and print the name of the operation that needs this to stderr."""
    torch.set_deterministic_debug_mode("warn")
    operation = first_line(error).partition(f" {NOT_DETERMINISTIC}")[0]
    print(
        f"{operation} has no deterministic kernel on this GPU: results of a rerun may differ by rounding errors",
        file=sys.stderr,
    )
