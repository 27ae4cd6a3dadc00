"""A user's script: the functions of a Python file, loaded once and called."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from mia_audit.learners.naming import script_and_function, user_code
from mia_audit.registry import load_file
from mia_audit.runtime.torchvision_guard import guard_imports


class Script:
    """The functions of a user's file; their exceptions are reported as the user's errors, not as errors of mia-audit."""

    def __init__(self, model: str, where: str, minutes: float) -> None:
        self.path, self.training = script_and_function(model)
        self.where = f"{where}: {self.path}"
        self.minutes = minutes
        folder = str(self.path.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)  # the file can then import modules beside it
        guard_imports()
        self.module: ModuleType = load_file(self.path, where)

    def has(self, name: str) -> bool:
        """Return whether the file defines a function."""
        return callable(getattr(self.module, name, None))

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Call one of the file's functions; its exceptions become a UserError that names the line."""
        with user_code(f"{self.where}: {name}", self.path, self.minutes):
            return getattr(self.module, name)(*arguments, **named)
