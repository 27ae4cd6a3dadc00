"""The logger plugin: Snakemake's events in, lines out."""

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import TaskID
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.tests import MockOutputSettings, TestLogHandlerBase

from mia_audit.config.load import check_audit
from snakemake_logger_plugin_mia_audit import STAGES, LogHandler, Stage, clock, last_line

AUDIT = {
    "audit": "mine",
    "datasets": {"digits": {"records": 60}},
    "training": {"batch": 10},
    "architectures": {"mlp-a": {"model": "vision_transformer"}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2]}},
    "explainers": {"methods": ["ixg"]},
}


class TestInterface(TestLogHandlerBase):
    """Snakemake's own tests of a logger plugin."""

    __test__ = True

    def get_log_handler_cls(self) -> type[LogHandler]:
        return LogHandler

    def get_log_handler_settings(self) -> None:
        return None


class Run:
    """A run that is replayed event by event."""

    def __init__(self, dryrun: bool = False) -> None:
        settings = MockOutputSettings()
        settings.dryrun = dryrun
        self.handler = LogHandler(settings, None)

    def say(self, text: str, level: int = logging.INFO, **fields: Any) -> None:
        record = logging.LogRecord("snakemake", level, "workflow.py", 1, text, (), None)
        vars(record).update(fields)
        self.handler.emit(record)

    def start(self, job: int, rule: str, log: Path | None = None, **wildcards: str) -> None:
        files = [str(log)] if log else []
        self.say("", event=LogEvent.JOB_INFO, jobid=job, rule_name=rule, wildcards=wildcards, log=files)

    def finish(self, job: int) -> None:
        self.say("", event=LogEvent.JOB_FINISHED, job_id=job)


def test_a_run_is_a_line_a_stage_and_the_answer_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.say("", audit=check_audit(AUDIT, "test"), results="results/mine", workflow=None)
    run.say("Building DAG of jobs...")
    run.say("Job stats: …", event=LogEvent.RUN_INFO, stats={"pool": 1, "membership": 1, "all": 1, "total": 3})
    run.start(1, "pool", dataset="digits")
    run.finish(1)
    run.start(2, "membership", dataset="digits")
    run.finish(2)
    run.start(0, "all")
    run.finish(0)
    run.say("The answer is 42.", answer="The answer is 42.")
    run.say("Complete log(s): somewhere.log")
    run.handler.close()
    out, err = capsys.readouterr()
    assert out == "\nThe answer is 42.\n"
    assert err.splitlines() == [
        "Audit mine: results go to results/mine",
        "[0:00] Data: done, 2 jobs in 0:00",
        "Complete log(s): somewhere.log",
    ]


def test_a_failed_job_shows_its_rule_and_the_last_line_of_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "pool.log"
    log.write_text("reading\nmia-audit: data/x.csv: no such file\n\n")
    run = Run()
    run.say("", event=LogEvent.RUN_INFO, stats={"pool": 1, "total": 1})
    run.start(1, "pool", log, dataset="digits")
    run.say("RuleException:\nCalledProcessError in file …", logging.ERROR, event=LogEvent.ERROR)
    failed = {"jobid": 1, "rule_name": "pool", "log": [str(log), str(tmp_path / "never-written.log")]}
    run.say("Error in rule pool", logging.ERROR, event=LogEvent.JOB_ERROR, **failed)
    run.say("At least one job did not complete successfully.", logging.ERROR, event=LogEvent.ERROR)
    run.handler.close()
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[:3] == [
        "FAILED: pool (dataset digits)",
        "  mia-audit: data/x.csv: no such file",
        f"  log: {log}",
    ]
    assert lines[3].startswith("Stopped after ") and len(lines) == 4


def test_a_failed_submission_shows_sbatch_s_own_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.start(1, "pool", tmp_path / "none.log", dataset="digits")
    own = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified"
    said = f"SLURM sbatch failed. The error message was '{own}'.\n    sbatch call:\n        sbatch --parsable\n"
    run.say("Error", logging.ERROR, event=LogEvent.JOB_ERROR, jobid=1, rule_name="pool", rule_msg=said, log=[])
    run.handler.close()
    assert capsys.readouterr().err == f"FAILED: pool (dataset digits)\n  {own}\n"


def test_an_interrupted_run_reports_no_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.say("", event=LogEvent.RUN_INFO, stats={"pool": 1, "total": 1})
    run.start(1, "pool", dataset="digits")
    run.say("Terminating processes on user request, this might take some time.")
    run.say("Error", logging.ERROR, event=LogEvent.JOB_ERROR, jobid=1, rule_name="pool", log=[])
    run.handler.close()
    assert capsys.readouterr().err == "Interrupted: stopping the running jobs.\n"


def test_warnings_and_errors_of_snakemake_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.say("some detail")
    run.say("the clock jumped", logging.WARNING)
    run.say("no such config", logging.ERROR, event=LogEvent.ERROR)
    run.handler.close()
    assert capsys.readouterr().err == "the clock jumped\nno such config\n"


def test_a_dry_run_counts_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(dryrun=True)
    stats = {"pool": 1, "train": 4, "discard": 2, "total": 7}
    run.say("", event=LogEvent.RUN_INFO, stats=stats)
    run.start(1, "pool", dataset="digits")
    run.say("", event=LogEvent.RUN_INFO, stats=stats)
    run.handler.close()
    assert capsys.readouterr().err.splitlines() == [
        "This would run 7 jobs:",
        "  Data: pool 1",
        "  Training: train 4, discard 2",
    ]


@pytest.mark.parametrize(("rules", "answered"), [(["all", "report"], True), (["train"], False)])
def test_nothing_to_do_prints_the_answer_of_a_report_that_was_asked_for(
    rules: list[str], answered: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"title": "Mine", "confidence": 0.95, "cautions": [], "groups": [{"name": "", "conclusion": "It leaks."}]}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    jobs = [SimpleNamespace(rule=SimpleNamespace(name=rule)) for rule in rules]
    run = Run()
    workflow = SimpleNamespace(dag=SimpleNamespace(jobs=jobs))
    run.say("", audit=check_audit(AUDIT, "test"), results=str(tmp_path), workflow=workflow)
    run.say("Nothing to be done (all requested files are present and up to date).")
    run.handler.close()
    out, err = capsys.readouterr()
    assert err.endswith("every file is up to date.\n")
    assert ("It leaks." in out) is answered


def test_a_folder_that_another_run_uses_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    run.say("", audit=check_audit(AUDIT, "test"), results=str(tmp_path), workflow=None)
    run.say("LockException:\nError: Directory cannot be locked.", level=logging.ERROR)
    run.handler.close()
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"{tmp_path}: in use by another run")


def test_an_empty_log_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(" \n")
    assert last_line(tmp_path / "log") == "its log is empty"


def test_every_rule_of_the_workflow_belongs_to_a_stage() -> None:
    rules = (Path(__file__).parents[2] / "workflow").rglob("*.smk")
    named = {name for path in rules for name in re.findall(r"^(?:use )?rule (?:\w+ as )?(\w+)", path.read_text(), re.M)}
    assert named == {rule for stage in STAGES.values() for rule in stage}


def test_a_stage_says_what_is_done_and_how_long_the_rest_takes() -> None:
    stage = Stage("Training", 4, TaskID(0))
    assert stage.state(100.0) == "waiting, 4 jobs"
    stage.since = 100.0
    assert stage.state(160.0) == "0 of 4 jobs"
    stage.finished = 1
    assert stage.state(160.0) == "1 of 4 jobs, about 3:00 left"
    stage.finished = 4
    assert stage.state(340.0) == "done, 4 jobs in 4:00"
    assert clock(3723.0) == "1:02:03"
