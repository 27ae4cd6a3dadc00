"""The same bits at every run: on a card, many kernels add in the order in which their threads come unless they are told not to."""

import os
import sys
from typing import Any

import torch
import torch.utils.deterministic

from mia_audit.errors import first_line

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WITHOUT = "does not have a deterministic implementation"
"""How torch says that an operation has no kernel that adds in a fixed order."""


def repeat_exactly() -> None:
    """Let this process's card add in a fixed order, from before its first product on; operations that cannot then raise."""
    os.environ.setdefault(WORKSPACE, ":4096:8")
    switches: Any = torch.utils.deterministic
    switches.fill_uninitialized_memory = False  # of no use here, and it takes time
    # fused attention heeds nothing less than "error" on its way back
    torch.set_deterministic_debug_mode("error")


def cannot_repeat(error: RuntimeError) -> bool:
    """Whether an operation raised since it cannot add in a fixed order."""
    return WITHOUT in str(error)


def let_be(error: RuntimeError) -> None:
    """Let an operation that cannot repeat itself add in any order from here on, and say so."""
    torch.set_deterministic_debug_mode("warn")
    operation = first_line(error).partition(f" {WITHOUT}")[0]
    print(
        f"{operation} adds in any order on this card: a rerun ends in the same numbers but for rounding",
        file=sys.stderr,
    )
