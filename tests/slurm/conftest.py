"""A temporary SLURM for these tests, and the project's profile filled in for it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
PATIENCE = 1500.0
"""Seconds after which a run is taken to hang, however busy the machine is."""
SECONDS = 2400


class Cluster:
    """A running temporary cluster."""

    snakemake = (str(Path(__file__).with_name("often.py")),)
    """Python's arguments for a Snakemake that asks for the states of jobs often."""
    quick = (
        "--max-jobs-per-timespan",
        "60/1s",
        "--latency-wait",
        "10",
        "--slurm-init-seconds-before-status-checks",
        "2",
    )
    """Options for a small cluster on one machine."""
    patience = PATIENCE

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def control(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run one of cluster.py's commands."""
        program = Path(__file__).with_name("cluster.py")
        return subprocess.run([sys.executable, str(program), command, str(self.folder)], text=True, capture_output=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which SLURM's commands find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def output(self, *command: str) -> str:
        """Return what one of SLURM's commands prints."""
        result = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def jobs(self, state: str) -> dict[str, str]:
        """List the rules of the jobs in a state by job number."""
        lines = self.output("squeue", "--noheader", f"--states={state}", "--format=%A %k").splitlines()
        numbered = (line.split() for line in lines)
        return {number: comment.removeprefix("rule_").partition("_")[0] for number, comment in numbered}

    def final_state(self, number: str) -> str:
        """Return a job's final state by SLURM's accounting."""
        return self.output("sacct", "-X", "-n", "-P", "-j", number, "-o", "State").split()[0]

    def number_of(self, rule: str, audit: Any, process: "subprocess.Popen[bytes]") -> str:
        """Wait until the rule's command is held in a job that Snakemake has registered; return the job's number."""
        audit.wait_until_held(rule, process)
        number = next(number for number, name in self.jobs("RUNNING").items() if name == rule)
        audit.wait_for_message(f"SLURM jobid {number} ", process)
        return number


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster for all tests, one at a time on a machine; they are skipped where none can be started."""
    temporary = tempfile.TemporaryDirectory(prefix="mia-audit-slurm-", dir="/tmp", ignore_cleanup_errors=True)
    with FileLock("/tmp/mia-audit-slurm.lock"), temporary as folder:
        started = Cluster(Path(folder))
        try:
            result = started.control("up")
            if result.returncode == 3:
                pytest.skip(result.stderr.strip())
            assert result.returncode == 0, result.stderr
            yield started
        finally:
            started.control("down")


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's profile, filled in as a user would."""
    text = (ROOT / "workflow" / "profiles" / "slurm" / "config.yaml").read_text()
    filled = text.replace("# slurm_account: ACCOUNT", "slurm_account: lab")
    filled = filled.replace("# slurm_partition: PARTITION", "slurm_partition: cpu")
    assert filled.count("lab") == filled.count("cpu") == 1
    folder = tmp_path_factory.mktemp("profile")
    (folder / "config.yaml").write_text(filled)
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests on one worker, since they share a cluster, and give them the time that a cluster takes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for marker in (pytest.mark.slurm, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(SECONDS)):
                item.add_marker(marker)
