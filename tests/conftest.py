"""What every test relies on: one thread, nothing of the environment that changes a result, and a tiny audit.

The tiny audit is run once by the real Snakemake; the tests of workflow/ and slurm/ look at it, copy it and run it again.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings
from threadpoolctl import threadpool_limits

settings.load_profile("ci")  # the same examples on every machine and every run, as where CI is set

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"
threadpool_limits(1)  # a plugin of pytest has imported NumPy before, with as many threads as there are cores

for name in [name for name in os.environ if name.startswith(("SNAKEMAKE_", "SLURM_"))]:
    del os.environ[name]

ROOT = Path(__file__).parents[1]
PATIENCE = 3600.0
"""Seconds after which a run is taken to hang, however busy the machine is."""

HOLD = """#!/bin/sh
while [ -e "{folder}/hold-$1" ]; do touch "{folder}/held-$1"; sleep 0.1; done
exec env PATH="{rest}" mia-audit "$@"
"""
"""Stands before mia-audit on the PATH, and waits."""

TINY: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"records": 60, "public": 40}},
    "membership": {"models": 5},
    "architectures": {
        "vit": {
            "model": "vision_transformer",
            "parameters": {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2},
            "pretrained": "public",
            "pretraining": {"epochs": 2, "batch": 20},
        }
    },
    "training": {"epochs": 2, "batch": 10},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8]}},
    "explainers": {"methods": ["ixg", "ig"], "ig_nodes": 2},
    "interpretability": {"records": 6, "models": 4, "shown": 2},
    "attacks": {"methods": ["threshold", "loss-lira", "l1-lrt"], "variances": ["pooled"]},
    "evaluation": {"fprs": [0.001, 0.1]},
    "report": {"exposed": 2},
    "compute": {"shadows_per_job": 3, "blocks_explained_per_job": 2, "batch": 32},
}


class Workflow:
    """The workflow in a folder of its own; the attributes may be changed before it is run."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.results = folder / "results" / "tiny"
        self.log = folder / "log"
        self.profile = ROOT / "workflow" / "profiles" / "default"
        self.options: Sequence[str] = ("--cores", "2")
        self.prefix: Sequence[str] = ()
        self.environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.configure(config)

    def stand_before(self, program: str, script: str) -> None:
        """Put a script before a program on the PATH; in it, `rest` is the PATH without it and `folder` the workflow's."""
        rest = self.environment["PATH"]
        stand_in = Path(tempfile.mkdtemp(dir=self.folder)) / program
        stand_in.write_text(script.format(folder=self.folder, rest=rest))
        stand_in.chmod(0o755)
        self.environment["PATH"] = f"{stand_in.parent}:{rest}"

    def hold(self, *commands: str) -> None:
        """Let these of mia-audit's subcommands wait where they begin, until they are released."""
        for command in commands:
            (self.folder / f"hold-{command}").touch()
        self.stand_before("mia-audit", HOLD)

    def wait_until_held(self, command: str, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the running workflow has come to a subcommand that is held."""
        self.wait_for_file(self.folder / f"held-{command}", process)

    def wait_for_file(self, path: Path, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the running workflow has made a file."""
        self._wait_until(path.exists, process)

    def wait_for_words(self, words: str, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the running workflow has said something."""
        self._wait_until(lambda: words in self.log.read_text(), process)

    def _wait_until(self, done: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
        given_up = time.monotonic() + PATIENCE
        while not done():
            assert process.poll() is None and time.monotonic() < given_up, self.log.read_text()
            time.sleep(0.05)

    def release(self, command: str) -> None:
        """Let the subcommand go on."""
        (self.folder / f"hold-{command}").unlink()

    def elsewhere(self, folder: Path) -> "Workflow":
        """Return the same audit in another folder, which may hold a copy of its results."""
        return Workflow(folder, self.config)

    def configure(self, config: dict[str, Any]) -> None:
        self.config = config
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(config))

    def command(self, *options: str) -> list[str]:
        files = {"snakefile": ROOT / "Snakefile", "configfile": "tiny.yaml", "workflow-profile": self.profile}
        named = [word for name, value in files.items() for word in (f"--{name}", str(value))]
        return [*self.prefix, sys.executable, "-m", "snakemake", *named, *self.options, *options]

    @contextmanager
    def started(self, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the workflow while the context lasts; what it says goes to `log`. Nothing of it outlives the context."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                self.command(*options),
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run the workflow to its end."""
        with self.started(*options) as process:
            process.wait(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, self.log.read_text())

    def planned(self) -> dict[str, int]:
        """Count the jobs per rule that a dry run plans."""
        result = self.run("--dry-run")
        assert result.returncode == 0, result.stdout
        assert "Exception" not in result.stdout
        lines = iter(result.stdout.splitlines())
        if "Job stats:" not in result.stdout:
            assert "Nothing to be done" in result.stdout
            return {}
        for line in lines:
            if line.startswith("-----"):
                break
        counts = {}
        for line in lines:
            if not line.strip():
                break
            rule, count = line.split()
            counts[rule] = int(count)
        return counts


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let nothing that a test draws from torch's global generator depend on the tests that this process has run before."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A fresh copy of the tiny config."""
    copied: dict[str, Any] = yaml.safe_load(yaml.safe_dump(TINY))
    return copied


@pytest.fixture
def workflow(tmp_path: Path, tiny: dict[str, Any]) -> Workflow:
    """The workflow in an empty folder."""
    return Workflow(tmp_path, tiny)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """The tiny audit, run to its end: to look at, not to change. All workers of a test run share it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = not (shared / "finished").exists()
        (shared / "finished").mkdir(exist_ok=True)
        done = Workflow(shared / "finished", TINY)
        if new:
            result = done.run()
            assert result.returncode == 0, result.stdout
    return done


@pytest.fixture
def copy_of_finished(finished: Workflow, tmp_path: Path) -> Callable[[dict[str, Any]], Workflow]:
    """Make a copy of the finished audit that a test may change, with another config."""

    def make(config: dict[str, Any]) -> Workflow:
        shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
        return Workflow(tmp_path / "copy", config)

    return make
