"""The stage to which a rule belongs, and the progress of every stage."""

from collections.abc import Mapping
from dataclasses import dataclass, field

STAGES = {
    "Data": ("pool", "membership", "imported", "groups"),
    "Start models": ("pretrain", "weights", "architecture"),
    "Training": ("train", "preflight", "discard"),
    "Signals": ("signals", "merge", "target", "target_signals", "target_merge"),
    "Explanation metrics": ("explanation_metrics",),
    "Attacks": ("attack", "evaluate", "evaluate_groups"),
    "Canaries": ("canary_bounds", "canary_draw"),
    "Private explanations": ("explain_privately", "explanation_signals", "black_box", "private_report"),
    "Report": ("report", "paper", "figures", "tables", "filters", "side_by_side", "manifest"),
}
"""The rules of every stage, in the order of an audit. The first rule of a stage does most of its work."""

NO_STAGE = ("all", "total")
"""Entries in Snakemake's counts of jobs that belong to no stage."""


def stage_of(rule: str) -> str:
    """Return the stage of a rule. A rule that no stage lists is its own stage."""
    return next((name for name, rules in STAGES.items() if rule in rules), rule)


@dataclass
class Rule:
    """The jobs of one rule."""

    jobs: int
    finished: int = 0
    seconds: float = 0.0
    """Total time of the finished jobs."""


@dataclass
class Running:
    """A job that has been started or submitted."""

    rule: str
    since: float
    models: int
    """Number of models of the job; its log has one line for each finished model."""
    log: str | None
    done: float = 0.0
    """The finished share of the job, according to its log."""


@dataclass
class Stage:
    """The jobs of one stage."""

    name: str
    rules: dict[str, Rule] = field(default_factory=dict)
    since: float | None = None
    until: float | None = None
    widest: int = 1
    """Largest number of jobs that ran at the same time."""

    @property
    def jobs(self) -> int:
        """Count the stage's jobs."""
        return sum(rule.jobs for rule in self.rules.values())

    @property
    def finished(self) -> int:
        """Count the finished jobs."""
        return sum(rule.finished for rule in self.rules.values())


class Progress:
    """The progress of a run; all times are in seconds of one clock."""

    def __init__(self, jobs: Mapping[str, int]) -> None:
        """Set up the stages from the number of jobs of every rule, which Snakemake counts before the first job."""
        order = [*STAGES, *jobs]
        self.stages: dict[str, Stage] = {}
        for rule in sorted(
            (rule for rule in jobs if rule not in NO_STAGE), key=lambda rule: order.index(stage_of(rule))
        ):
            name = stage_of(rule)
            self.stages.setdefault(name, Stage(name)).rules[rule] = Rule(jobs[rule])
        self.running: dict[int, Running] = {}

    def start(self, job: int, rule: str, now: float, models: int = 1, log: str | None = None) -> None:
        """Note that a job has been started or submitted."""
        if rule in NO_STAGE:
            return
        stage = self.stages.setdefault(stage_of(rule), Stage(stage_of(rule)))
        stage.rules.setdefault(rule, Rule(1))
        stage.since = now if stage.since is None else stage.since
        self.running[job] = Running(rule, now, models, log)
        stage.widest = max(stage.widest, len(self._running(stage)))

    def finish(self, job: int, now: float) -> Stage | None:
        """Note that a job has succeeded, and return its stage."""
        running = self.running.pop(job, None)
        if running is None:
            return None
        stage = self.stages[stage_of(running.rule)]
        rule = stage.rules[running.rule]
        rule.finished += 1
        rule.seconds += now - running.since
        if stage.finished == stage.jobs:
            stage.until = now
        return stage

    def fail(self, job: int) -> None:
        """Note that a job has failed; it may be started again."""
        self.running.pop(job, None)

    def fraction(self, stage: Stage) -> float:
        """Return the finished share of a stage's jobs; a running job counts by the share of it that is finished."""
        return (stage.finished + sum(job.done for job in self._running(stage))) / max(stage.jobs, 1)

    def seconds_left(self, stage: Stage, now: float) -> float | None:
        """Estimate, from a stage's jobs so far, the seconds until the stage ends; None while too little is known."""
        known = STAGES.get(stage.name, tuple(stage.rules))
        longest = next(name for name in known if name in stage.rules)
        left = 0.0
        for name, rule in list(stage.rules.items()):
            jobs = [job for job in self._running(stage) if job.rule == name]
            done = rule.finished + sum(job.done for job in jobs)
            if done:
                spent = rule.seconds + sum(now - job.since for job in jobs if job.done)
                left += max(rule.jobs - done, 0) * spent / done
            elif name == longest:
                return None
        return left / stage.widest

    def _running(self, stage: Stage) -> list[Running]:
        """List the stage's running jobs, safely while another thread changes them."""
        return [job for job in list(self.running.values()) if job.rule in stage.rules]
