"""Errors that a user can fix, reported as one line on stderr with exit code 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake in the user's input; its one-line message says what is wrong, where, what was expected and how to fix it."""


class Mistakes(UserError):
    """Several mistakes, each in a line of its own."""

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = list(messages)
        super().__init__("; ".join(self.messages))


class NotFinite(UserError):
    """A model has numbers that are not finite; `reason` explains why the audit leaves it out."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Diverged(NotFinite):
    """A training run diverged: the epoch, and the number that was not finite."""

    def __init__(self, epoch: int, what: str) -> None:
        message = f"training diverged in epoch {epoch}: {what}; lower the learning rate"
        super().__init__(message, f"diverged in epoch {epoch}: {what}")


QUOTED, MOST = 80, 10
"""Characters of a quoted text, and items of a list, in a message."""


def few(names: Iterable[object], longest: int = QUOTED) -> str:
    """Join names with commas: each one cut, the first ten, and how many more there are."""
    texts = [str(name) for name in names]
    cut = [text if len(text) <= longest else f"{text[:longest]}…" for text in texts[:MOST]]
    return ", ".join(cut) + (f" … and {len(texts) - MOST} more" if len(texts) > MOST else "")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known name, if any, and the list of known names."""
    names = sorted(known)
    initials = [one for one in names if len(name) > 1 and "".join(word[:1] for word in one.split("_")) == name]  # lr
    near = initials or get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'? (known: {few(names)})" if near else f"known: {few(names)}"


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message, or its type if the message is empty."""
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def shown(row: Iterable[float]) -> str:
    """Return the first three of a row's numbers."""
    first = [f"{value:.3g}" for value in row]
    return "(" + ", ".join(first[:3]) + (", …)" if len(first) > 3 else ")")
