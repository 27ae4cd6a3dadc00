"""One GPU per process, by file locks. The kernel releases them however the process ends. Nothing here imports torch."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import takewhile
from pathlib import Path

from filelock import FileLock, Timeout

from mia_audit.errors import UserError
from mia_audit.regular_files import own_folder

VISIBLE = "CUDA_VISIBLE_DEVICES"
SECONDS_BETWEEN_ATTEMPTS = 0.5

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
    wanted: str,
    installed: Callable[[], Sequence[str]] = installed_gpus,
    environment: Mapping[str, str] = os.environ,
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
        raise UserError(
            f"compute.device: {wanted} was requested, but the GPUs here are: {', '.join(available) or 'none'}"
        )
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
