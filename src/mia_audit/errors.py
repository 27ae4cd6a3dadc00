"""Mistakes that a user can mend: one line on stderr and exit code 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake in what the user gave: its message is one line that says what, where, what was expected and how to mend it."""


class NotFinite(UserError):
    """A model whose numbers are not finite; `reason` states this for a model that is left out."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Diverged(NotFinite):
    """A training whose numbers are no longer finite: in which epoch that was seen, and what was not."""

    def __init__(self, epoch: int, what: str) -> None:
        message = f"training diverged in epoch {epoch}: {what}; lower the learning rate"
        super().__init__(message, f"diverged in epoch {epoch}: {what}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the tail of an error about an unknown name: the nearest known name, if one is near, and the list of all."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'? (known: {', '.join(names)})" if near else f"known: {', '.join(names)}"


def first_line(error: Exception) -> str:
    """Return the first line of what a library says went wrong, or the error's kind where it says nothing."""
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
