"""The tiny audit on a real SLURM through the project's profile, while everything happens to it that happens on a cluster."""

import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

OUTAGE = 45.0
"""Seconds that the controller is away."""

FAIL_ONCE = """#!/bin/sh
if [ "$1" = evaluate ] && mkdir "{folder}/failed" 2>/dev/null; then echo "failing once" >&2; exit 1; fi
exec env PATH="{rest}" mia-audit "$@"
"""
"""Stands before mia-audit on the PATH and fails the first `evaluate`."""

SLOW = """#!/bin/sh
if [ -e "{folder}/slow" ]; then touch "{folder}/asked"; while [ -e "{folder}/slow" ]; do sleep 0.1; done; fi
exec env PATH="{rest}" sacct "$@"
"""
"""Stands before sacct on the PATH and does not answer while a file is there."""


@dataclass(frozen=True)
class Story:
    """What came to pass."""

    results: Path
    interrupted: str
    left_by_interrupt: dict[str, str]
    cancelled: str
    code: int
    output: str


@pytest.fixture(scope="module")
def story(finished: Any, cluster: Any, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Run the audit and interrupt it; run it again, cancel a job, fail another, take the controller away, and let it end."""
    folder = tmp_path_factory.mktemp("story")
    audit = finished.elsewhere(folder)
    audit.profile, audit.options = profile, cluster.quick
    audit.environment |= cluster.environment
    audit.hold("membership", "architecture", "train", "signals")
    audit.stand_before("mia-audit", FAIL_ONCE)
    audit.stand_before("sacct", SLOW)

    with audit.started() as process:
        audit.wait_until_held("architecture", process)
        interrupted = cluster.number_of("membership", audit, process)
        (folder / "slow").touch()
        audit.wait_for_file(folder / "asked", process)
        process.send_signal(signal.SIGINT)  # just while Snakemake's plugin asks how its jobs are
        audit.wait_for_words("Terminating processes on user request", process)
        (folder / "slow").unlink()
        process.wait(cluster.patience)
    left = cluster.jobs("PENDING,RUNNING")
    audit.release("membership")
    audit.release("architecture")

    with audit.started() as process:
        cancelled = cluster.number_of("train", audit, process)
        cluster.ask("scancel", cancelled)
        audit.release("train")
        audit.wait_until_held("signals", process)
        assert cluster.do("stop").returncode == 0
        audit.release("signals")
        threading.Event().wait(OUTAGE)  # nobody waits for anything here: this is the fault
        assert cluster.do("start").returncode == 0
        process.wait(cluster.patience)
    return Story(audit.results, interrupted, left, cancelled, process.returncode, audit.log.read_text())


def test_the_audit_ends(story: Story) -> None:
    assert story.code == 0, story.output
    assert (story.results / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_an_interrupted_run_leaves_no_job_behind(story: Story, cluster: Any) -> None:
    assert story.left_by_interrupt == {}
    assert cluster.final_state(story.interrupted) == "CANCELLED"


def test_scores_metrics_and_tables_are_those_of_a_local_run(story: Story, finished: Any) -> None:
    kept = ("pools/**/*", "*/*/*/*.parquet", "tables/*", "figures/*", "report.html")
    local, cluster = (
        {str(path.relative_to(root)): path.read_bytes() for kind in kept for path in root.glob(kind) if path.is_file()}
        for root in (finished.results, story.results)
    )
    assert len(local) > 30
    assert [name for name in local | cluster if local.get(name) != cluster.get(name)] == []


def test_a_cancelled_job_is_noticed_and_submitted_again(story: Story, cluster: Any) -> None:
    assert cluster.final_state(story.cancelled) == "CANCELLED"
    assert "SLURM status is: 'CANCELLED'" in story.output
    assert "Trying to restart" in story.output


def test_a_job_that_fails_once_is_submitted_again(story: Story) -> None:
    assert (story.results.parents[1] / "failed").exists()
    assert "SLURM status is: 'FAILED'" in story.output


def test_the_logs_of_all_jobs_are_kept(story: Story) -> None:
    logs = {
        path.relative_to(story.results.parent / "slurm-logs").parts[0]
        for path in story.results.parent.rglob("slurm-logs/*/**/*.log")
    }
    assert {"rule_pool", "rule_train", "rule_evaluate", "rule_report"} <= logs


def test_each_job_gets_what_its_rule_asks_for(story: Story, cluster: Any) -> None:
    lines = cluster.ask(
        "sacct", "-S", "now-1day", "-X", "-n", "-P", "-o", "Comment,Account,Partition,TimelimitRaw,ReqMem,ReqCPUS"
    ).splitlines()
    asked = {line.partition("|")[0].split("_")[1]: line.split("|")[1:] for line in lines}
    assert asked["train"] == ["lab", "cpu", "720", "2000M", "1"]
    assert asked["tables"] == ["lab", "cpu", "60", "4000M", "1"]
