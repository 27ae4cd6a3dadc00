"""A SLURM of its own for these tests, and the profile filled in for it."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 3600.0
"""Seconds after which a run is taken to hang, however busy the machine is."""


class Cluster:
    """A running throw-away cluster."""

    quick = (
        "--slurm-init-seconds-before-status-checks",
        "1",
        "--max-jobs-per-timespan",
        "60/1s",
        "--latency-wait",
        "10",
    )
    """Options for a small cluster on one machine: ask soon and often."""
    patience = PATIENCE

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, what: str) -> "subprocess.CompletedProcess[str]":
        """Do one of what cluster.py does."""
        program = Path(__file__).with_name("cluster.py")
        return subprocess.run([sys.executable, str(program), what, str(self.folder)], text=True, capture_output=True)

    @property
    def environment(self) -> dict[str, str]:
        """What tells SLURM's commands which cluster is meant."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """Run one of SLURM's commands."""
        result = subprocess.run(command, env=os.environ | self.environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def jobs(self, state: str) -> dict[str, str]:
        """List the rules of the jobs in a state by job number."""
        lines = self.ask("squeue", "--noheader", f"--states={state}", "--format=%A %k").splitlines()
        numbered = (line.split() for line in lines)
        return {number: comment.removeprefix("rule_").partition("_")[0] for number, comment in numbered}

    def final_state(self, number: str) -> str:
        """Return what accounting says became of a job."""
        return self.ask("sacct", "-X", "-n", "-P", "-j", number, "-o", "State").split()[0]

    def number_of(self, rule: str, audit: Any, process: "subprocess.Popen[bytes]") -> str:
        """Wait until the rule's command is held in a job that the audit knows of, and return the job's number."""
        audit.wait_until_held(rule, process)
        number = next(number for number, name in self.jobs("RUNNING").items() if name == rule)
        audit.wait_for_words(f"SLURM jobid {number} ", process)
        return number


@contextmanager
def alone_on_this_machine() -> Iterator[None]:
    """Wait until no other test run has a cluster here: what starts one takes the last one for left over."""
    try:
        place = os.open("/etc/slurm", os.O_RDONLY)
    except OSError:  # no SLURM, no cluster
        yield
        return
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster for all tests; skipped where none can be had."""
    temporary = tempfile.TemporaryDirectory(prefix="mia-audit-slurm-", dir="/tmp", ignore_cleanup_errors=True)
    with alone_on_this_machine(), temporary as folder:
        started = Cluster(Path(folder))
        try:
            result = started.do("up")
            if result.returncode == 3:
                pytest.skip(result.stderr.strip())
            assert result.returncode == 0, result.stderr
            yield started
        finally:
            started.do("down")


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's profile as a user fills it in, in a folder of its own."""
    text = (ROOT / "workflow" / "profiles" / "slurm" / "config.yaml").read_text()
    filled = text.replace("# slurm_account: ACCOUNT", "slurm_account: lab")
    filled = filled.replace("# slurm_partition: PARTITION", "slurm_partition: cpu")
    assert filled.count("lab") == filled.count("cpu") == 1
    folder = tmp_path_factory.mktemp("profile")
    (folder / "config.yaml").write_text(filled)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep all tests on one worker: one cluster is enough."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("slurm"))
