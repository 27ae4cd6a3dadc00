"""Progress of long training: a bar on a terminal, a plain line now and then in a log."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Display

SECONDS_BETWEEN_LINES = 10.0
STEP_TIME = re.compile(r"train accuracy .* records/s, (\d\S*) ms a step$", re.MULTILINE)
"""Ends the line of a model that was trained."""


class Reporter(Protocol):
    """Told of every step of the model that is being trained."""

    def begin(self, what: str, epochs: int, records: int) -> None:
        """A model begins: `records` is how many an epoch holds."""

    def step(self, records: int, epoch: int) -> None:
        """A step of that many records has been taken."""

    def end(self, remark: str) -> None:
        """The model is trained."""


@contextmanager
def reporter() -> Iterator[Reporter]:
    """Yield a bar where stderr is a terminal, else lines."""
    if sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _Lines()


def step_times(log: str) -> list[float]:
    """Read the milliseconds a step of every model whose end a log tells: those between its first step and its last."""
    return [float(found) for found in STEP_TIME.findall(log)]


class _Lines:
    def begin(self, what: str, epochs: int, records: int) -> None:
        self.what, self.epochs, self.records, self.seen, self.steps = what, epochs, records, 0, 0
        self.start = self.spoken = self.first = self.last = time.monotonic()

    def step(self, records: int, epoch: int) -> None:
        self.seen += records
        self.steps += 1
        now = self.last = time.monotonic()
        if self.steps == 1:
            self.first = now
        if now - self.spoken >= SECONDS_BETWEEN_LINES:
            self.spoken = now
            self._say(f"epoch {epoch} of {self.epochs}" if self.epochs > 1 else f"{self.seen} of {self.records}", now)

    def end(self, remark: str) -> None:
        self._say(remark, time.monotonic(), f", {self._milliseconds():.3g} ms a step" if self.steps > 1 else "")

    def _milliseconds(self) -> float:
        """A step's time without what stands before the first one (the model, its accounting) and behind the last."""
        return 1000 * (self.last - self.first) / (self.steps - 1)

    def _say(self, text: str, now: float, more: str = "") -> None:
        speed = self.seen / max(now - self.start, 1e-9)
        print(f"{self.what}: {text}, {speed:.0f} records/s{more}", file=sys.stderr, flush=True)


class _Bar:
    def __init__(self, display: "Display") -> None:
        self.display = display

    def begin(self, what: str, epochs: int, records: int) -> None:
        self.what, self.start, self.seen = what, time.monotonic(), 0
        self.task = self.display.add_task(what, total=epochs * records, speed="")

    def step(self, records: int, epoch: int) -> None:
        self.seen += records
        speed = self.seen / max(time.monotonic() - self.start, 1e-9)
        self.display.update(self.task, completed=self.seen, speed=f"epoch {epoch}, {speed:.0f} records/s")

    def end(self, remark: str) -> None:
        self.display.remove_task(self.task)
        self.display.print(f"{self.what}: {remark}", highlight=False)


@contextmanager
def _bar() -> Iterator[_Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as display:
        yield _Bar(display)
