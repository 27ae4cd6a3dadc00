"""Handle Snakemake's events: show progress, failures and, at the end, the report's answer."""

import logging
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from mia_audit.sanitise import console, visible_lines
from snakemake_logger_plugin_mia_audit.display import Display, LiveTable, PlainLines, clock
from snakemake_logger_plugin_mia_audit.overview import overview
from snakemake_logger_plugin_mia_audit.stages import Progress

PASSED_ON = ("Trying to restart job", "Shutting down")
"""Beginnings of Snakemake's messages that are passed on, because users need them when something goes wrong."""
COMMAND_FAILED = "RuleException:\nCalledProcessError"
"""Beginning of Snakemake's second message on a failed job. It lacks the reason, which is in the job's log."""
INTERRUPTED = "Terminating processes on user request"
NOTHING = "Nothing to be done"
LOG_OF_RUN = "Complete log(s)"
FAILURE = "At least one job did not complete successfully"


class LogHandler(LogHandlerBase):
    """Shows a line per stage. Snakemake's own log is in .snakemake/log, and every job's log in results/NAME/logs."""

    def __post_init__(self) -> None:
        """Choose between a live table and plain lines."""
        settings = self.common_settings
        display = console(sys.stderr, no_color=settings.nocolor or None, highlight=False)
        live = display.is_terminal and not display.is_dumb_terminal and not settings.dryrun
        self.display: Display = LiveTable(display) if live else PlainLines(display)
        self.began = time.monotonic()
        self.progress: Progress | None = None
        self.wildcards: dict[int, str] = {}
        self.results: Path | None = None
        self.workflow: Any = None
        self.answer = ""
        self.interrupted = False

    @property
    def writes_to_stream(self) -> bool:
        """Replace Snakemake's own output."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Write no file."""
        return False

    @property
    def has_filter(self) -> bool:
        """Receive every event, even with --quiet."""
        return True

    @property
    def has_formatter(self) -> bool:
        """Format events here."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """Need no graph."""
        return False

    def emit(self, record: logging.LogRecord) -> None:
        """Show one event."""
        try:
            self._show(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """End the display, then print the answer to stdout."""
        self.display.stop()
        if self.answer:
            print(visible_lines(f"\n{self.answer}"), flush=True)
            self.answer = ""
        super().close()

    def _show(self, record: logging.LogRecord) -> None:
        fields = vars(record)
        event = fields.get("event")
        if "audit" in fields:
            self.results, self.workflow = Path(fields["results"]), fields["workflow"]
            self.display.write(f"{overview(fields['audit'], self.results)}\n")
        elif "answer" in fields:
            self.answer = fields["answer"]
        elif event == LogEvent.RUN_INFO:
            self._plan(fields["stats"])
        elif event == LogEvent.JOB_INFO:
            self._start(fields)
        elif event == LogEvent.JOB_FINISHED:
            self._finish(fields["job_id"])
        elif event == LogEvent.JOB_ERROR:
            self._fail(fields)
        elif event is None or event == LogEvent.ERROR:
            self._message(record)

    def _plan(self, stats: Mapping[str, int]) -> None:
        if self.progress is not None:
            return  # at the end of a dry run, Snakemake counts the jobs again
        self.progress = Progress(stats)
        if self.common_settings.dryrun:
            jobs = sum(stage.jobs for stage in self.progress.stages.values())
            self.display.write(f"This would run {jobs} jobs:")
            for stage in self.progress.stages.values():
                rules = ", ".join(f"{name} {rule.jobs}" for name, rule in stage.rules.items())
                self.display.write(f"  {stage.name}: {rules}")
        else:
            self.display.start(self.progress)

    def _start(self, job: Mapping[str, Any]) -> None:
        if self.progress is None or self.common_settings.dryrun:
            return
        wildcards = dict(job["wildcards"] or {})
        self.wildcards[job["jobid"]] = ", ".join(f"{name} {value}" for name, value in wildcards.items())
        log = next(iter(job["log"]), None)
        self.progress.start(
            job["jobid"], job["rule_name"], time.monotonic(), models_in(wildcards.get("block", "")), log
        )

    def _finish(self, job: int) -> None:
        stage = self.progress and self.progress.finish(job, time.monotonic())
        if stage:
            self.display.update(stage)

    def _fail(self, job: Mapping[str, Any]) -> None:
        if self.progress is not None:
            self.progress.fail(job["jobid"])
        if self.interrupted:
            return  # the job did not fail, but was stopped
        what = self.wildcards.get(job["jobid"], "")
        self.display.write(f"FAILED: {job['rule_name']}{f' ({what})' if what else ''}")
        for name in job["log"]:
            path = Path(name)
            if path.exists():
                self.display.write(f"  {last_line(path)}\n  log: {path}")

    def _message(self, record: logging.LogRecord) -> None:
        text = str(record.msg)
        if text.startswith(NOTHING):
            self.display.write("Nothing to do: every file is up to date.")
            self.answer = self._read_answer()
        elif text.startswith(INTERRUPTED):
            self.interrupted = True
            self.display.write("Interrupted: stopping the running jobs.")
        elif text.startswith(LOG_OF_RUN):
            self.display.stop()  # all jobs have ended
            self.display.write(text)
        elif FAILURE in text:
            spent = clock(time.monotonic() - self.began)
            self.display.write(f"Stopped after {spent}. The same command continues from here.")
        elif not text.startswith(COMMAND_FAILED) and (record.levelno >= logging.WARNING or text.startswith(PASSED_ON)):
            self.display.write(text)

    def _read_answer(self) -> str:
        """Read the answer, if the report is among the requested files."""
        from mia_audit.report.terminal import answer_text

        if self.results is None or self.common_settings.dryrun:
            return ""
        reported = any(job.rule.name == "report" for job in self.workflow.dag.jobs)
        return answer_text(self.results) if reported else ""


def models_in(block: str) -> int:
    """Return the number of models of a block, given its name, FIRST-LAST."""
    ends = re.fullmatch(r"(\d+)-(\d+)", block)
    return int(ends[2]) - int(ends[1]) + 1 if ends else 1


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"
