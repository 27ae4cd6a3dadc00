"""Progress of training: a bar on a terminal, a line every few seconds in a log.

Resources used by a stage: seconds, CPU seconds, and the peak memory of its process and of its GPU.
"""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mia_audit.sanitise import console

if TYPE_CHECKING:
    from rich.progress import Progress as Display

SECONDS_BETWEEN_LINES = 10.0


class Reporter(Protocol):
    """Receives every step of the model that is being trained."""

    def begin(self, what: str, epochs: int, records: int) -> None:
        """Start a model whose epochs have this many records."""

    def step(self, records: int, epoch: int) -> None:
        """Count a step on this many records."""

    def end(self, remark: str) -> None:
        """Finish the model, and show a remark."""


@contextmanager
def reporter() -> Iterator[Reporter]:
    """Yield a progress bar if stderr is a terminal, otherwise a reporter that prints lines."""
    if sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _Lines()


class _Lines:
    def begin(self, what: str, epochs: int, records: int) -> None:
        self.what, self.epochs, self.records, self.seen = what, epochs, records, 0
        self.start = self.spoken = time.monotonic()

    def step(self, records: int, epoch: int) -> None:
        self.seen += records
        now = time.monotonic()
        if now - self.spoken >= SECONDS_BETWEEN_LINES:
            self.spoken = now
            self._say(f"epoch {epoch} of {self.epochs}" if self.epochs > 1 else f"{self.seen} of {self.records}", now)

    def end(self, remark: str) -> None:
        self._say(remark, time.monotonic())

    def _say(self, text: str, now: float) -> None:
        speed = self.seen / max(now - self.start, 1e-9)
        print(f"{self.what}: {text}, {speed:.0f} records/s", file=sys.stderr, flush=True)


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
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(sys.stderr)) as display:
        yield _Bar(display)


def write_usage(path: Path, seconds: float) -> None:
    """Write the resources that this process used in these seconds as a table with one row; megabytes are 10⁶ bytes.

    The kernel records the peak itself, so that even a short stage is measured. The memory of a GPU is the peak of
    PyTorch's allocator; it is 0 if no GPU was used.
    """
    from mia_audit.storage.atomic import write_text  # the workflow reads tables without pyarrow

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    row = {
        "seconds": f"{seconds:.3f}",
        "cpu_seconds": f"{time.process_time():.3f}",
        "peak_mb": f"{kilobytes * 1024 / 1e6:.1f}",
        "gpu_peak_mb": f"{_gpu_bytes() / 1e6:.1f}",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\t".join(row) + "\n" + "\t".join(row.values()) + "\n")


def _gpu_bytes() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.max_memory_reserved())
