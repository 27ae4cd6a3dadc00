"""Audits what classifiers, and the explanations shipped with them, leak about who was in their training set.

The names of `__all__` are the Python interface (docs/python.md); they are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mia_audit.api import Audit, audit, observe_canaries, run, signals
    from mia_audit.errors import UserError

__all__ = ["Audit", "UserError", "audit", "observe_canaries", "run", "signals"]


def __getattr__(name: str) -> Any:
    """Import a name of the interface; `signals` is the package itself, which can be called."""
    from importlib import import_module

    if name == "signals":
        return import_module("mia_audit.signals")
    if name == "UserError":
        return import_module("mia_audit.errors").UserError
    if name in __all__:
        return getattr(import_module("mia_audit.api"), name)
    raise AttributeError(f"module 'mia_audit' has no attribute '{name}'")
