"""What all tests share: one thread, an environment without settings of Snakemake's or SLURM's, and a tiny audit.

The tiny audit is run once by the real Snakemake; the tests of workflow/ and slurm/ read it, copy it and run it again.
"""

import contextlib
import gc
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from filelock import FileLock
from hypothesis import settings
from threadpoolctl import threadpool_limits

from mia_audit.planning.plan import read_counts
from mia_audit.runtime import slurm, warm

from .agreement import figures_agree_with_their_data  # noqa: F401
from .killing import kills_of_steps

settings.load_profile("ci")  # the same examples on every machine and in every run

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"
threadpool_limits(1)  # for NumPy, which a pytest plugin has imported before

for name in [name for name in os.environ if name.startswith(("SNAKEMAKE_", "SLURM_"))]:
    del os.environ[name]

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / "tests" / "workflow"
warm.start(threads=1, pytorch=True)  # one for all tests of this process; it imports nothing before a stage is run
PATIENCE = 1500.0
"""Seconds after which a run is taken to hang, however busy the machine is."""

HOLD = """#!/bin/sh
while [ -e "{folder}/hold-$1" ]; do touch "{folder}/held-$1"; sleep 0.1; done
exec env PATH="{rest}" mia-audit "$@"
"""
"""A wrapper of mia-audit that waits while a file is there."""

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
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8], "accountant": "rdp"}},  # the quickest accountant
    "explainers": {"methods": ["ixg", "ig"], "ig_nodes": 2},
    "explanation_metrics": {"records": 6, "models": 4, "shown": 2},
    "attacks": {"methods": ["threshold", "loss-lira", "l1-lrt"], "likelihoods": ["pooled"]},
    "evaluation": {"fprs": [0.001, 0.1]},
    "report": {"exposed": 2, "figures": {"formats": ["svg"]}},
    "compute": {"shadows_per_job": 3, "blocks_explained_per_job": 2, "micro_batch": 32},
}


class Workflow:
    """The workflow in a folder of its own; its attributes may be changed before it is run."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.results = folder / "results" / "tiny"
        self.log = folder / "log"
        self.profile = ROOT / "workflow" / "profiles" / "default"
        self.options: Sequence[str] = ("--cores", "2")
        self.prefix: Sequence[str] = ()
        self.snakemake: Sequence[str] = ("-m", "snakemake")
        self.environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.configure(config)

    def wrap(self, program: str, script: str) -> None:
        """Put a script before a program on the PATH; in it, `rest` is the PATH without it and `folder` the workflow's."""
        rest = self.environment["PATH"]
        wrapper = Path(tempfile.mkdtemp(dir=self.folder)) / program
        wrapper.write_text(script.format(folder=self.folder, rest=rest))
        wrapper.chmod(0o755)
        self.environment["PATH"] = f"{wrapper.parent}:{rest}"

    def hold(self, *commands: str) -> None:
        """Make these of mia-audit's subcommands wait when they start, until they are released."""
        for command in commands:
            (self.folder / f"hold-{command}").touch()
        self.wrap("mia-audit", HOLD)

    def wait_until_held(self, command: str, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the running workflow has started a subcommand that is held."""
        self.wait_for_file(self.folder / f"held-{command}", process)

    def wait_for_file(self, path: Path, process: "subprocess.Popen[bytes]") -> None:
        """Wait until a file of the running workflow exists."""
        self._wait_until(path.exists, process)

    def wait_for_message(self, message: str, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the running workflow has printed a message."""
        self._wait_until(lambda: message in self.log.read_text(), process)

    def _wait_until(self, done: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def release(self, command: str) -> None:
        """Let the subcommand continue."""
        (self.folder / f"hold-{command}").unlink()

    def in_folder(self, folder: Path) -> "Workflow":
        """Return the same audit in another folder, which may hold a copy of its results."""
        return Workflow(folder, self.config)

    def configure(self, config: dict[str, Any]) -> None:
        self.config = config
        (self.folder / "tiny.yaml").write_text(yaml.safe_dump(config))

    def arguments(self, *options: str) -> list[str]:
        files = {"snakefile": ROOT / "Snakefile", "configfile": "tiny.yaml", "workflow-profile": self.profile}
        named = [word for name, value in files.items() for word in (f"--{name}", str(value))]
        return [*named, *self.options, *options]

    def command(self, *options: str) -> list[str]:
        return [*self.prefix, sys.executable, *self.snakemake, *self.arguments(*options)]

    @contextmanager
    def started(self, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the workflow, printing to `log`, within this context; no process of it survives the context."""
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

    def dry_run(self) -> tuple[int, str]:
        """Plan the workflow by Snakemake's command line inside this process; return its exit code and what it printed.

        A process of its own would spend most of its time on imports.
        """
        from snakemake.cli import main

        printed, thresholds, code = io.StringIO(), gc.get_threshold(), 0
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self.environment),
            mock.patch.object(slurm, "_held", held := []),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            try:
                main(self.arguments("--dry-run"))
            except SystemExit as ended:
                code = int(ended.code or 0)
        for descriptor in held:  # as when the process ends
            os.close(descriptor)
        gc.set_threshold(*thresholds)
        return code, printed.getvalue()

    def planned(self) -> dict[str, int]:
        """Count the jobs per rule that a dry run plans, but for the rule `all`."""
        code, output = self.dry_run()
        assert code == 0, output
        assert "Exception" not in output
        assert ("Job stats:" in output) != ("Nothing to be done" in output), output
        return read_counts(output)


@pytest.hookimpl(tryfirst=True)
def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the time and the seed of the fuzzer, for long runs at night: `pytest -m slow tests/fuzz --fuzz-seconds 3600 --fuzz-seed 7`."""
    parser.addoption(
        "--fuzz-seconds", type=float, help="seconds that files are broken and read, instead of 60 times each"
    )
    parser.addoption("--fuzz-seed", type=int, default=0, help="seed of what is broken (0)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the quick tests of a file on one worker, which makes what they share once; those of the workflow go to the next free one."""
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("slow", "xdist_group")) and item.path.parent != WORKFLOW:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(ROOT)))


def pytest_runtest_setup() -> None:
    """Seed torch's global generator, so that no test depends on the ones before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def environment_is_restored() -> Iterator[None]:
    """Undo what a test's commands set in this process, such as the visible GPUs, which the next test's programs would inherit."""
    before = dict(os.environ)
    yield
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no figures to files, which takes most of the time of a small audit; the report still has its own."""
    monkeypatch.setattr("mia_audit.report.figures.catalogue.draw", lambda *results, **which: None)


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], int]]:
    """Kill private training at a step (0: never), counted over all attempts from that call on; what it returns counts them."""
    return kills_of_steps(monkeypatch)


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
    """The tiny audit, run to its end, to read but not to change; all workers of a test run share it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with FileLock(shared / "finished.lock"):
        new = not (shared / "finished").exists()
        (shared / "finished").mkdir(exist_ok=True)
        workflow = Workflow(shared / "finished", TINY)
        if new:
            result = workflow.run()
            assert result.returncode == 0, result.stdout
    return workflow


@pytest.fixture
def copy_of_finished(finished: Workflow, tmp_path: Path) -> Callable[[dict[str, Any]], Workflow]:
    """A function that copies the finished audit, with another config, for a test to change."""

    def copy(config: dict[str, Any]) -> Workflow:
        shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
        return Workflow(tmp_path / "copy", config)

    return copy


@dataclass(frozen=True)
class Table:
    """Records [m, n] in a few clusters, and a black box on them."""

    records: Any

    def black_box(self, records: Any) -> Any:
        import numpy as np

        slope = np.linspace(-1, 1, records.shape[1])
        return np.tanh(records @ slope + 0.5 * np.sin(2 * records[:, 0]))[:, None]

    @property
    def explained(self) -> Any:
        from mia_audit.explain.private_local.records import ExplanationSet

        return ExplanationSet.from_arrays(self.records, self.black_box(self.records))


def _clustered(records: int, features: int, seed: int = 0, clusters: int = 4, spread: float = 0.3) -> Table:
    import numpy as np

    random = np.random.default_rng(seed)
    centres = 1.5 * random.standard_normal((clusters, features))
    noise = spread * random.standard_normal((records, features))
    return Table((centres[random.integers(clusters, size=records)] + noise).astype(np.float32))


@pytest.fixture(scope="session")
def clustered() -> Callable[..., Table]:
    """Make such a table: records, features, seed, clusters and their spread."""
    return _clustered
