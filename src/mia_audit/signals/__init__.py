"""A few scalars per model and record: their names, how they are computed and merged.

The package is callable, because in `import mia_audit as mia; mia.signals(model, records, labels)` a function has the package's name.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that, when called, calls its function `of_model.signals`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from mia_audit.signals.of_model import signals

        return signals(*arguments, **named)


sys.modules[__name__].__class__ = _Callable
