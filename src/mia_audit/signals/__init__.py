"""Signals, a few scalars per model and record: their names, computation and merging.

The package is callable, because in `import mia_audit as mia; mia.signals(model, records, labels)` a function has the
same name as the package.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """The package, which calls its function `of_model.signals` when it is called."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from mia_audit.signals.compute import signals

        return signals(*arguments, **named)


sys.modules[__name__].__class__ = _Callable
