"""The tiny audit on a real SLURM with the project's profile: interrupts, cancelled and failing jobs, a missing controller."""

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mia_audit.planning.requests import PROCESS_BYTES, PROCESS_MEGABYTES

SETTING = "digits/vit/none-epsinf"

OUTAGE = 25.0
"""Seconds that the controller is stopped."""

FAIL_ONCE = """#!/bin/sh
if [ "$1" = evaluate ] && mkdir "{folder}/failed" 2>/dev/null; then echo "failing once" >&2; exit 1; fi
exec env PATH="{rest}" mia-audit "$@"
"""
"""A wrapper of mia-audit whose first `evaluate` fails."""

SLOW = """#!/bin/sh
if [ -e "{folder}/slow" ]; then touch "{folder}/called"; while [ -e "{folder}/slow" ]; do sleep 0.1; done; fi
exec env PATH="{rest}" sacct "$@"
"""
"""A wrapper of sacct that does not answer while a file is there."""

LIMITED = """#!/bin/sh
exec python "{folder}/limited.py" env PATH="{rest}" mia-audit "$@"
"""
ENFORCE = """
import os, subprocess, sys, time
from pathlib import Path
asked = ["squeue", "--noheader", "--format=%m", "--jobs", os.environ["SLURM_JOB_ID"]]
allowed = int(subprocess.check_output(asked, text=True).strip().removesuffix("M"))
with subprocess.Popen(sys.argv[1:]) as job:
    while job.poll() is None:
        used = int(Path(f"/proc/{job.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
        if used > allowed:
            job.kill()
            sys.exit(f"out of memory: {used:.0f} of {allowed} MB")
        time.sleep(0.05)
sys.exit(job.returncode)
"""
"""A wrapper of mia-audit that kills a job whose resident memory exceeds what it requested, which SLURM itself does not do here."""

HUNGRY = """
import time
import numpy as np
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))

def train(task):
    held = np.ones(2_300_000_000, dtype=np.uint8)
    time.sleep(0.5)
    return build(task.records.shape[1:], len(task.classes))
"""
"""A user's own model whose training holds more memory than a first attempt requests."""


@dataclass(frozen=True)
class Run:
    """What was observed of the audit's two runs."""

    audit: Any
    results: Path
    interrupted: str
    left_by_interrupt: dict[str, str]
    cancelled: str
    code: int
    output: str


@pytest.fixture(scope="module")
def run(finished: Any, cluster: Any, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Start the audit and interrupt it; start it again, cancel a job, fail another, stop the controller for a while, let it end."""
    folder = tmp_path_factory.mktemp("audit")
    audit = finished.in_folder(folder)
    packed = audit.config["compute"] | {
        "shadows_per_job": 5,
        "blocks_explained_per_job": 5,
    }  # fewer jobs, the same scores
    audit.configure(audit.config | {"compute": packed})
    audit.profile, audit.snakemake, audit.options = profile, cluster.snakemake, cluster.quick
    audit.environment |= cluster.environment
    audit.hold("membership", "architecture", "train", "signals")
    audit.wrap("mia-audit", FAIL_ONCE)
    audit.wrap("sacct", SLOW)
    metrics = f"results/tiny/{SETTING}/metrics.parquet"  # from there on a job is like any other

    with audit.started(metrics) as process:
        audit.wait_until_held("architecture", process)
        interrupted = cluster.number_of("membership", audit, process)
        (folder / "slow").touch()
        audit.wait_for_file(folder / "called", process)
        process.send_signal(signal.SIGINT)  # while Snakemake's plugin asks for the states of its jobs
        audit.wait_for_message("Terminating processes on user request", process)
        (folder / "slow").unlink()
        process.wait(cluster.patience)
    left = cluster.jobs("PENDING,RUNNING")
    audit.release("membership")
    audit.release("architecture")

    with audit.started(metrics) as process:
        cancelled = cluster.number_of("train", audit, process)
        cluster.output("scancel", cancelled)
        audit.release("train")
        audit.wait_until_held("signals", process)
        assert cluster.control("stop").returncode == 0
        audit.release("signals")
        time.sleep(OUTAGE)
        assert cluster.control("start").returncode == 0
        process.wait(cluster.patience)
    return Run(audit, audit.results, interrupted, left, cancelled, process.returncode, audit.log.read_text())


def test_the_setting_is_completed(run: Run) -> None:
    assert run.code == 0, run.output


def test_an_interrupted_run_leaves_no_job_behind(run: Run, cluster: Any) -> None:
    assert run.left_by_interrupt == {}
    assert cluster.final_state(run.interrupted) == "CANCELLED"


def test_signals_scores_and_metrics_are_those_of_a_local_run(run: Run, finished: Any) -> None:
    kept = ("pools/**/*", f"{SETTING}/*.parquet", f"{SETTING}/models/shadow-*/**/*")
    local, cluster = (
        {str(path.relative_to(root)): path.read_bytes() for kind in kept for path in root.glob(kind) if path.is_file()}
        for root in (finished.results, run.results)
    )
    assert len(local) > 10
    assert [name for name in local | cluster if local.get(name) != cluster.get(name)] == []


def test_a_cancelled_job_is_submitted_again(run: Run, cluster: Any) -> None:
    assert cluster.final_state(run.cancelled) == "CANCELLED"
    assert "SLURM status is: 'CANCELLED'" in run.output
    assert "Trying to restart" in run.output


def test_a_job_that_fails_once_is_submitted_again(run: Run) -> None:
    assert (run.results.parents[1] / "failed").exists()
    assert "SLURM status is: 'FAILED'" in run.output


def test_the_logs_of_all_jobs_are_kept(run: Run) -> None:
    logs = {
        path.relative_to(run.results.parent / "slurm-logs").parts[0]
        for path in run.results.parent.rglob("slurm-logs/*/**/*.log")
    }
    assert {"rule_pool", "rule_train", "rule_evaluate"} <= logs


def test_each_job_gets_the_resources_of_its_rule(run: Run, cluster: Any) -> None:
    lines = cluster.output(
        "sacct", "-S", "now-1day", "-X", "-n", "-P", "-o", "Comment,Account,Partition,TimelimitRaw,ReqMem,ReqCPUS"
    ).splitlines()
    granted = {line.partition("|")[0].split("_")[1]: line.split("|")[1:] for line in lines}
    *rest, memory, cores = granted["train"]
    assert (rest, cores) == (["lab", "cpu", "720"], "1")
    # by the model, and as much again for every further attempt
    beyond = [int(memory.removesuffix("M")) - attempt * PROCESS_BYTES / 1e6 for attempt in (1, 2, 3)]
    assert any(0 <= megabytes < 150 for megabytes in beyond), memory
    # 300 scores take less than a megabyte
    assert granted["attack"] == ["lab", "cpu", "240", f"{PROCESS_MEGABYTES + 1}M", "1"]
    assert granted["merge"] == ["lab", "cpu", "60", "2000M", "1"]


def test_what_fits_no_node_is_refused_before_anything_is_submitted(
    copy_of_finished: Any, tiny: dict[str, Any], cluster: Any, profile: Path
) -> None:
    copy = copy_of_finished(tiny | {"membership": {"models": 6}, "compute": tiny["compute"] | {"micro_batch": 10**7}})
    copy.profile, copy.options = profile, cluster.quick
    copy.environment |= cluster.environment
    result = copy.run()
    assert result.returncode == 1
    assert "MB with compute.micro_batch: 10000000," in result.stdout
    assert "may have 3,000 MB: set compute.micro_batch: " in result.stdout
    assert "SLURM jobid" not in result.stdout


def test_what_needs_more_memory_than_it_requested_is_tried_again_with_more(
    copy_of_finished: Any, tiny: dict[str, Any], cluster: Any, profile: Path
) -> None:
    """Nodes have 3 GB: a first attempt of a user's own model requests 2, a second all of them."""
    packed = tiny["compute"] | {"shadows_per_job": tiny["membership"]["models"]}
    hungry = {"hungry": {"model": "hungry.py"}}
    audit = copy_of_finished(tiny | {"architectures": hungry, "mechanisms": {"none": {}}, "compute": packed})
    audit.profile, audit.snakemake, audit.options = profile, cluster.snakemake, cluster.quick
    audit.environment |= cluster.environment
    (audit.folder / "hungry.py").write_text(HUNGRY)
    (audit.folder / "limited.py").write_text(ENFORCE)
    audit.wrap("mia-audit", LIMITED)
    result = audit.run("results/tiny/digits/hungry/none-epsinf/models/.jobs/000-004")
    assert result.returncode == 0, result.stdout
    (log,) = (audit.results / "logs" / "train").glob("*hungry*")
    assert "out of memory" not in log.read_text()
    requests = cluster.output("sacct", "-S", "now-1hour", "-X", "-n", "-P", "-o", "Comment,State,ReqMem").splitlines()
    trained = [line.split("|")[1:] for line in requests if line.startswith("rule_train_") and "hungry" in line]
    assert trained == [["FAILED", "2000M"], ["COMPLETED", "3000M"]]
