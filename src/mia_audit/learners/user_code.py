"""Run a user's code in this process: an exception becomes one line that names the file, and an endless loop is ended."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mia_audit.errors import UserError, first_line
from mia_audit.registry import line_in


class OutOfTimeError(Exception):
    """The user's code took longer than compute.minutes_per_model."""


@contextmanager
def user_code(where: str, path: Path | None = None, minutes: float = 0.0) -> Iterator[None]:
    """Run the user's code within this context, for at most `minutes` (0: no limit).

    An exception is printed with its traceback and becomes a UserError that begins with `where` and, if the file at
    `path` raised the exception, names the line. The time limit takes effect when compiled code returns to Python.
    """
    try:
        with _limited(minutes):
            yield
    except UserError:
        raise
    except OutOfTimeError:
        raise UserError(overrun(where, minutes)) from None
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        line = line_in(error, path.resolve()) if path else 0
        at = f"{path}, line {line}: " if line else ""
        raise UserError(f"{where}: {at}{type(error).__name__}: {first_line(error)} (the traceback is above)") from None


def overrun(where: str, minutes: float) -> str:
    """Return the error for exceeding the time limit of a model."""
    return f"{where}: still running after {minutes:g} minutes, the limit of compute.minutes_per_model; raise the limit, or look for an endless loop"


@contextmanager
def _limited(minutes: float) -> Iterator[None]:
    """Raise OutOfTimeError in the main thread after the given minutes."""
    if not minutes or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
