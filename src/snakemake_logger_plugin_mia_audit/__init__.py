"""Snakemake logger plugin `--logger mia-audit`: progress and time left of every stage, failures with their reason, the answer.

Snakemake's own log is in .snakemake/log, and every job's log in results/NAME/logs.
"""

import logging
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from mia_audit.config.expand import last_rule
from mia_audit.sanitise import console, visible_lines

STAGES = {
    "Data": ("pool", "membership", "imported", "groups"),
    "Start models": ("pretrain", "weights", "architecture"),
    "Training": ("train", "discard"),
    "Signals": ("signals", "merge", "target", "target_signals", "target_merge"),
    "Explanation metrics": ("explanation_metrics",),
    "Attacks": ("attack", "evaluate", "evaluate_groups"),
    "Canaries": ("canary_bounds", "canary_draw"),
    "Private explanations": ("explain_privately", "explanation_signals", "black_box"),
    "Report": ("filters", "report", "paper", "manifest", "over_seeds"),
}
"""The rules of every stage, in the order of an audit; a rule that is not listed is its own stage."""
NO_STAGE = ("all", "total")
SECONDS_BETWEEN_LINES = 30.0
PASSED_ON = ("Trying to restart job", "Shutting down")
"""Beginnings of Snakemake's messages that users need when something goes wrong."""
SUBMISSION = re.compile(r"sbatch failed.*?The error message was '(.*?)'\.\n", re.DOTALL)
"""What Snakemake's SLURM plugin says of a failed submission, with sbatch's own lines."""
NOT_SUBMITTED = "Exception in run_job"
"""Beginning of Snakemake's message on a job that could not be submitted, which goes on with the reason and a traceback."""
COMMAND_FAILED = "RuleException:\nCalledProcessError"
"""Beginning of Snakemake's second message on a failed job, whose reason is in the job's log."""


class Stage:
    """The jobs of one stage; times are in seconds of one clock."""

    def __init__(self, name: str, jobs: int, bar: TaskID) -> None:
        self.name, self.jobs, self.bar = name, jobs, bar
        self.finished = 0
        self.since = self.shown = 0.0

    def state(self, now: float) -> str:
        """Say how many jobs are done and, while some are not, how long they take at the rate so far."""
        jobs = f"{self.jobs} job{'s' if self.jobs != 1 else ''}"
        if not self.since:
            return f"waiting, {jobs}"
        spent = now - self.since
        if self.finished >= self.jobs:
            return f"done, {jobs} in {clock(spent)}"
        left = f", about {clock(spent / self.finished * (self.jobs - self.finished))} left" if self.finished else ""
        return f"{self.finished} of {jobs}{left}"


class LogHandler(LogHandlerBase):
    """Shows a bar per stage on a terminal, and elsewhere a line when a stage ends or every half minute."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True  # every event is received, even with --quiet
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        """Choose between bars and plain lines."""
        settings = self.common_settings
        screen = console(sys.stderr, no_color=settings.nocolor or None, highlight=False)
        self.live = screen.is_terminal and not screen.is_dumb_terminal and not settings.dryrun
        columns = (TextColumn("{task.description:<20}"), BarColumn(24), TextColumn("{task.fields[state]}"))
        self.bars = Progress(*columns, console=screen, disable=not self.live, refresh_per_second=4)
        self.began = time.monotonic()
        self.stages: dict[str, Stage] = {}
        self.running: dict[int, tuple[str, str]] = {}
        self.results: Path | None = None
        self.workflow: Any = None
        self.last_rule = ""
        self.answer = ""
        self.interrupted = False

    def emit(self, record: logging.LogRecord) -> None:
        """Show one event."""
        try:
            self._show(record)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """End the display, then print the answer to stdout."""
        self.bars.stop()
        if self.answer:
            print(visible_lines(f"\n{self.answer}"), flush=True)
            self.answer = ""
        super().close()

    def _write(self, text: str) -> None:
        self.bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self, record: logging.LogRecord) -> None:
        fields = vars(record)
        event = fields.get("event")
        if "audit" in fields:
            self.results, self.workflow = Path(fields["results"]), fields["workflow"]
            self.last_rule = last_rule(fields["audit"])
            self._write(f"Audit {fields['audit'].audit}: results go to {self.results}")
        elif "answer" in fields:
            self.answer = fields["answer"]
        elif event == LogEvent.RUN_INFO and not self.stages:  # a dry run counts the jobs again at its end
            self._plan({rule: jobs for rule, jobs in fields["stats"].items() if rule not in NO_STAGE})
        elif event == LogEvent.JOB_INFO and not self.common_settings.dryrun:
            self._start(fields)
        elif event == LogEvent.JOB_FINISHED and fields["job_id"] in self.running:
            stage = self.stages[stage_of(self.running.pop(fields["job_id"])[0])]
            stage.finished += 1
            self._update(stage)
        elif event == LogEvent.JOB_ERROR:
            self._fail(fields)
        elif event is None or event == LogEvent.ERROR:
            self._message(record)

    def _plan(self, jobs: Mapping[str, int]) -> None:
        order = [*STAGES, *jobs]
        names = sorted({stage_of(rule) for rule in jobs}, key=order.index)
        rules = {name: {rule: jobs[rule] for rule in jobs if stage_of(rule) == name} for name in names}
        for name in names:
            self._add(name, sum(rules[name].values()))
        if not self.common_settings.dryrun:
            return self.bars.start()
        self._write(f"This would run {sum(jobs.values())} jobs:")
        for name in names:
            self._write(f"  {name}: {', '.join(f'{rule} {count}' for rule, count in rules[name].items())}")

    def _add(self, name: str, jobs: int) -> Stage:
        bar = self.bars.add_task(name, total=jobs, state="")
        self.stages[name] = Stage(name, jobs, bar)
        self.bars.update(bar, state=self.stages[name].state(0.0))
        return self.stages[name]

    def _start(self, job: Mapping[str, Any]) -> None:
        rule, wildcards = job["rule_name"], dict(job["wildcards"] or {})
        if rule in NO_STAGE:
            return
        self.running[job["jobid"]] = rule, ", ".join(f"{name} {value}" for name, value in wildcards.items())
        stage = self.stages.get(stage_of(rule)) or self._add(stage_of(rule), 1)
        if not stage.since:
            stage.since = stage.shown = time.monotonic()
            self.bars.update(stage.bar, state=stage.state(stage.since))

    def _update(self, stage: Stage) -> None:
        now = time.monotonic()
        self.bars.update(stage.bar, completed=stage.finished, state=stage.state(now))
        if not self.live and (stage.finished == stage.jobs or now - stage.shown >= SECONDS_BETWEEN_LINES):
            stage.shown = now
            self._write(f"[{clock(now - self.began)}] {stage.name}: {stage.state(now)}")

    def _fail(self, job: Mapping[str, Any]) -> None:
        _, what = self.running.pop(job["jobid"], ("", ""))
        if self.interrupted:
            return  # the job did not fail, but was stopped
        self._write(f"FAILED: {job['rule_name']}{f' ({what})' if what else ''}")
        refused = SUBMISSION.search(job.get("rule_msg") or "")
        if refused:  # the job has not run, so that a log is of an earlier attempt
            return self._write(visible_lines("\n".join(f"  {line}" for line in refused[1].strip().splitlines())))
        for path in filter(Path.exists, map(Path, job["log"])):
            self._write(f"  {last_line(path)}\n  log: {path}")

    def _message(self, record: logging.LogRecord) -> None:
        text = str(record.msg)
        if text.startswith("Nothing to be done"):
            self._write("Nothing to do: every file is up to date.")
            self.answer = self._read_answer()
        elif text.startswith("Terminating processes on user request"):
            self.interrupted = True
            self._write("Interrupted: stopping the running jobs.")
        elif text.startswith("Complete log(s)"):  # all jobs have ended
            self.bars.stop()
            self._write(text)
        elif text.startswith("LockException"):
            self._write(
                f"{self.results and self.results.absolute()}: in use by another run; wait for its end or, if it was killed, run the"
                " same command with -- --unlock at its end, and then without"
            )
        elif "At least one job did not complete successfully" in text:
            self._write(f"Stopped after {clock(time.monotonic() - self.began)}. The same command continues from here.")
        elif text.startswith(NOT_SUBMITTED):
            self._write(text.partition("\nTraceback")[0])
        elif not text.startswith(COMMAND_FAILED) and (record.levelno >= logging.WARNING or text.startswith(PASSED_ON)):
            self._write(text)

    def _read_answer(self) -> str:
        """Read the answer, if the report is among the requested files."""
        from mia_audit.report.answer import answer_text

        if self.results is None or self.common_settings.dryrun:
            return ""
        reported = any(job.rule.name == self.last_rule for job in self.workflow.dag.jobs)
        return answer_text(self.results) if reported else ""


def stage_of(rule: str) -> str:
    """Return the stage of a rule."""
    return next((name for name, rules in STAGES.items() if rule in rules), rule)


def clock(seconds: float) -> str:
    """Write seconds as 0:07, 12:34 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"
