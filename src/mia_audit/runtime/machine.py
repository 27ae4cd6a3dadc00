"""The machine or cluster on which a workflow runs: its GPUs and memory, SLURM, and what an earlier run left behind.

One GPU per process, by file locks. The kernel releases them however the process ends. Nothing here imports torch.
"""

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mia_audit import SNAKEFILE
from mia_audit.errors import UserError
from mia_audit.host_memory import whole_memory
from mia_audit.regular_files import own_folder, refuse_links
from mia_audit.runtime import warm
from mia_audit.runtime.slurm import (
    EXECUTOR,
    cancel_jobs_of,
    clamp_future_mtimes,
    node_memory,
    partition_has_gpus,
    prepend_environment,
    put_first_on_path,
    release_stale_lock,
    run_mistakes_once,
)
from mia_audit.runtime.versions import refuse_other_version

VISIBLE = "CUDA_VISIBLE_DEVICES"
SECONDS_BETWEEN_ATTEMPTS = 0.5

WRAPPERS = SNAKEFILE.parent / "profiles" / "slurm" / "bin"
"""The folder of the wrappers of SLURM's programs."""

_held: list[FileLock] = []
"""Locks of this process's GPUs, kept because a lock is released when its object is garbage-collected."""


def installed_gpus() -> list[str]:
    """List the indices of the driver's GPUs; empty without a driver."""
    try:
        result = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return result.stdout.split() if result.returncode == 0 else []


def visible_gpus(value: str) -> list[str]:
    """List the GPUs that CUDA_VISIBLE_DEVICES leaves visible: those before the first invalid index, such as -1."""
    return list(takewhile(lambda gpu: gpu not in ("", "-1"), map(str.strip, value.split(","))))


def usable_gpus(
    wanted: str, installed: Callable[[], Sequence[str]] = installed_gpus, environment: Mapping[str, str] = os.environ
) -> list[str]:
    """List the GPUs that the jobs on this machine may use; `wanted` is the config's `compute.device`."""
    if wanted == "cpu":
        return []
    available = visible_gpus(environment[VISIBLE]) if VISIBLE in environment else list(installed())
    index = wanted.partition(":")[2]
    return [gpu for gpu in available if not index or gpu == index]


def acquire_gpu(
    wanted: str,
    installed: Callable[[], Sequence[str]] = installed_gpus,
    environment: MutableMapping[str, str] = os.environ,
    folder: Path | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> str | None:
    """Lock a free GPU for the life of this process and make it the only visible one, before torch is imported.

    `wanted` is the config's `compute.device`. Returns the GPU's index, or None if no lock is needed: on the CPU,
    without a GPU, and under SLURM, which assigns GPUs itself (unless one allocation gave several GPUs to a whole
    workflow). Waits while all GPUs are in use. Only GPUs that CUDA_VISIBLE_DEVICES leaves visible are used. Raises
    UserError for a GPU that does not exist, and if others can write to the folder of locks.
    """
    if wanted == "cpu":
        environment[VISIBLE] = ""
        return None
    visible = visible_gpus(environment[VISIBLE]) if VISIBLE in environment else None
    allocation = environment.get("SLURM_JOB_ID")
    if allocation and len(visible or ()) < 2:
        return None
    available = list(installed()) if visible is None else visible
    _, _, index = wanted.partition(":")
    if index and index not in available:
        raise UserError(f"compute.device: {wanted} was requested; the GPUs here are: {', '.join(available) or 'none'}")
    candidates = [index] if index else available
    if not candidates:
        return None
    # SLURM numbers the GPUs of every allocation from 0
    owner = f"{os.getuid()}-{allocation}" if allocation else f"{os.getuid()}"
    folder = own_folder(folder or _runtime_folder(environment) / f"mia-audit-gpus-{owner}")
    announced = False
    while True:
        for gpu in candidates:
            lock = FileLock(folder / f"gpu-{gpu}.lock", mode=0o600, thread_local=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            _held.append(lock)
            environment[VISIBLE] = gpu
            return gpu
        if not announced:
            announced = True
            print(
                f"waiting for GPU {' or '.join(candidates)}, locked by your other processes (locks in {folder})",
                file=sys.stderr,
                flush=True,
            )
        wait(SECONDS_BETWEEN_ATTEMPTS)


def _runtime_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of this user's short-lived files: XDG_RUNTIME_DIR, to which nobody else can write, or the system's folder."""
    given = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return Path(given) if os.access(given, os.W_OK) else Path(tempfile.gettempdir())


GARBAGE = (1_000_000, 50, 100)
"""Thresholds of garbage collection, which takes a sixth of the time of planning thousands of jobs and frees nothing: a plan stays alive."""


def look_once_a_timespan() -> None:
    """Keep one timer for Snakemake's next look at its waiting jobs.

    Snakemake starts a timer at every look while jobs wait, and looks again when it fires. Every job that ends adds a
    look, so that hundreds a second take a core of their own, and timers of a cluster's profile delay the end by a minute.
    """
    from snakemake.scheduling.job_scheduler import JobScheduler

    pending: list[threading.Timer] = []

    def schedule(scheduler: Any, delay: float) -> None:
        def look() -> None:
            pending.clear()
            scheduler._open_jobs.release()

        if not pending:
            pending.append(threading.Timer(delay, look))
            pending[0].daemon = True
            pending[0].start()

    JobScheduler._schedule_reevalutation = schedule


def prepare(workflow: Any, device: str, megabytes: int | None, results: Path) -> "Machine":
    """Prepare this process for a Snakemake workflow, and return the machine of its jobs.

    `device` and `megabytes` are the config's `compute.device` and `compute.memory_mb`. The process that is not a job's
    own also looks at waiting jobs once a timespan, releases the lock of a killed run, puts wrappers of SLURM's programs
    first on PATH, and sets times of results in the future to now. UserError if a lock, or something inside the results,
    is a link, or if another version wrote the results.
    """
    gc.set_threshold(*GARBAGE)
    prepend_environment()
    machine = Machine(workflow, device, megabytes)
    if workflow.is_main_process:
        look_once_a_timespan()
        refuse_links(results)
        refuse_other_version(results)
        release_stale_lock(Path.cwd())
        put_first_on_path(WRAPPERS)
        clamp_future_mtimes(results)
        run_mistakes_once()
        # no more local jobs start than there are GPUs, because a job that waits for a GPU would hold its cores
        local = workflow.resource_settings.nodes is None
        if local and "gpu" not in workflow.global_resources and machine.local_gpus:
            workflow.register_resource("gpu", len(machine.local_gpus))
    return machine


class Machine:
    """What jobs of a workflow may use."""

    def __init__(self, workflow: Any, device: str, megabytes: int | None) -> None:
        self._workflow, self._device, self._megabytes = workflow, device, megabytes
        self.gpus = cache(self._gpus)
        self._has_gpus = cache(partition_has_gpus)  # SLURM is queried once per partition

    @property
    def slurm(self) -> bool:
        """Whether jobs are submitted to SLURM."""
        plugin = self._workflow.executor_plugin
        return bool(plugin and plugin.name == EXECUTOR)

    @cached_property
    def local_gpus(self) -> list[str]:
        """The GPUs of this machine that jobs may use. The driver is queried once."""
        return usable_gpus(self._device)

    @cached_property
    def memory(self) -> int | None:
        """The largest memory of a job in megabytes; None if unknown. The Snakemake inside a job does not query it."""
        if self._megabytes or self._workflow.dryrun or not self._workflow.is_main_process:
            return self._megabytes
        if self.slurm:
            return node_memory()
        return None if self._workflow.non_local_exec else whole_memory() // 10**6

    def _gpus(self, rule: str) -> int:
        """Return how many GPUs a rule's job requests: one if the config, this machine or SLURM's partition provides one."""
        if not self._workflow.is_main_process:  # inside a job: the value with which it was submitted
            return min(1, self._workflow.global_resources.get("gpu").value or 0)
        if self._device != "auto":
            return int(self._device.startswith("cuda"))
        return int(self._has_gpus(self._partition_of(rule)) if self.slurm else bool(self.local_gpus))

    def _partition_of(self, rule: str) -> str:
        """Return SLURM's partition for a rule as the profile states it; empty for the default one."""
        settings = self._workflow.resource_settings
        for known in (settings.overwrite_resources.get(rule), settings.default_resources):
            if known and "slurm_partition" in known:
                return str(known["slurm_partition"].raw)
        return ""

    def start_worker(self, threads: int, pytorch: bool) -> None:
        """Start the warm worker if jobs run on this machine."""
        if self._workflow.non_local_exec:
            warm.turn_off()
        else:
            warm.start(threads, pytorch=pytorch)

    def cancel_jobs(self, logs: Iterable[str]) -> None:
        """Cancel what a failed run, with these logs of Snakemake, left in SLURM's queue."""
        for path in logs:
            cancel_jobs_of(Path(path), self._workflow.executor_plugin.name)
