"""A few scalars per model and record: their names, how they are computed and merged.

The package can be called, since `import mia_audit as mia; mia.signals(model, records, labels)` names a function like this package.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is called as its function `of_model.signals`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from mia_audit.signals.of_model import signals

        return signals(*arguments, **named)


sys.modules[__name__].__class__ = _Callable
