"""The display of progress: a live table on a terminal, plain lines elsewhere."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from snakemake_logger_plugin_mia_audit.stages import Progress, Stage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_READINGS = 2.0
LOGS_READ = 32
"""Largest number of running jobs whose logs are read; a cluster may run more."""


class Display(Protocol):
    """Shows a run; called by one thread."""

    def write(self, text: str) -> None:
        """Print text above the progress."""

    def start(self, progress: Progress) -> None:
        """Begin to show a run's progress."""

    def update(self, stage: Stage) -> None:
        """Show that a job of this stage has ended."""

    def stop(self) -> None:
        """End the display."""


class PlainLines:
    """Plain lines without control characters: one when a stage ends, and one every half minute in a long stage."""

    def __init__(self, console: "Console") -> None:
        self.console = console

    def write(self, text: str) -> None:
        """Print text as it is."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, progress: Progress) -> None:
        """Remember when the run began."""
        self.progress = progress
        self.began = time.monotonic()
        self.last: dict[str, float] = {}

    def update(self, stage: Stage) -> None:
        """Print a line if the stage has ended, or if its last line is older than `SECONDS_BETWEEN_LINES`."""
        now = time.monotonic()
        if stage.until is None and now - self.last.get(stage.name, stage.since or now) < SECONDS_BETWEEN_LINES:
            return
        self.last[stage.name] = now
        self.write(f"[{clock(now - self.began)}] {stage.name}: {state(self.progress, stage, now)}")

    def stop(self) -> None:
        """Do nothing, because plain lines need no end."""


class LiveTable:
    """A table with a line per stage, drawn again several times a second."""

    def __init__(self, console: "Console") -> None:
        self.console = console
        self.live: Live | None = None
        self.read = 0.0

    def write(self, text: str) -> None:
        """Print text above the table."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, progress: Progress) -> None:
        """Draw the table."""
        from rich.live import Live

        self.progress = progress
        self.live = Live(console=self.console, get_renderable=self._table, refresh_per_second=4, transient=False)
        self.live.start()

    def update(self, stage: Stage) -> None:
        """Do nothing: the table is redrawn several times a second."""

    def stop(self) -> None:
        """Leave the table as it is."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _table(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = time.monotonic()
        if now - self.read >= SECONDS_BETWEEN_READINGS:
            self.read = now
            read_logs(self.progress)
        table = Table.grid(padding=(0, 2))
        for stage in list(self.progress.stages.values()):
            table.add_row(
                Text(stage.name),
                ProgressBar(total=1.0, completed=self.progress.fraction(stage), width=24),
                Text(state(self.progress, stage, now)),
            )
        return table


def state(progress: Progress, stage: Stage, now: float) -> str:
    """Return a stage's progress in a few words."""
    jobs = f"{stage.jobs} job{'s' if stage.jobs != 1 else ''}"
    if stage.since is None:
        return f"waiting, {jobs}"
    if stage.until is not None:
        return f"done, {jobs} in {clock(stage.until - stage.since)}"
    left = progress.seconds_left(stage, now)
    return f"{stage.finished} of {jobs}" + (f", about {clock(left)} left" if left is not None and left >= 1 else "")


def clock(seconds: float) -> str:
    """Write seconds as 0:07, 12:34 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def read_logs(progress: Progress) -> None:
    """Read from the logs of the running jobs how many of their models are finished."""
    jobs = [job for job in list(progress.running.values()) if job.models > 1 and job.log]
    if len(jobs) > LOGS_READ:
        return
    for job in jobs:
        try:
            with Path(job.log or "").open(encoding="utf-8", errors="replace") as log:
                done = len({line.split(":")[0] for line in log if line.startswith("shadow ") and "epoch " not in line})
        except OSError:
            continue  # the log does not exist yet, or is not on this machine
        job.done = min(done / job.models, 1.0)
