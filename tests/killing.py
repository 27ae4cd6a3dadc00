"""A kill within the process of the tests: an exception where a signal would come that no process survives."""

from collections.abc import Callable
from typing import Any

import pytest


class Killed(BaseException):
    """The process ends here; what handles errors does not see it."""


def killed(*_: Any, **__: Any) -> None:
    """Take the place of a function that a process does not come to the end of."""
    raise Killed


def kills_of_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], int]]:
    """Return a function that kills private training at a step, and returns how to ask for the steps that were begun.

    Steps are counted from that call on, over all attempts; 0 kills none.
    """
    from mia_audit.privacy import per_record

    begun = last = 0
    call = per_record.ClippedSum.__call__

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == last:
            raise Killed
        return call(self, *arguments)

    monkeypatch.setattr(per_record.ClippedSum, "__call__", counted)

    def at(step: int) -> Callable[[], int]:
        nonlocal begun, last
        begun, last = 0, step
        return lambda: begun

    return at
