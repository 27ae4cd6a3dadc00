"""Audit what classifiers and their explanations leak about membership in the training set.

The names in `__all__` are the Python interface (docs/reference/commands.md); each is imported on first use.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mia_audit.api import Audit, audit, observe_canaries, run, signals
    from mia_audit.errors import UserError

__all__ = ["SNAKEFILE", "Audit", "UserError", "audit", "observe_canaries", "run", "signals"]

SNAKEFILE = Path(__file__).parent / "workflow" / "Snakefile"
"""The workflow, as this package runs it and as other Snakefiles use it (docs/reference/commands.md)."""


def __getattr__(name: str) -> Any:
    """Import a name of the interface; `signals` is the callable package of that name."""
    from importlib import import_module

    if name == "signals":
        return import_module("mia_audit.signals")
    if name == "UserError":
        return import_module("mia_audit.errors").UserError
    if name in __all__:
        return getattr(import_module("mia_audit.api"), name)
    raise AttributeError(f"module 'mia_audit' has no attribute '{name}'")
