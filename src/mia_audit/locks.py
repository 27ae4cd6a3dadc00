"""Locks that the kernel frees however a process ends, and Snakemake's own lock after a killed run."""

import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

_held: list[int] = []


def hold(path: Path, mode: int) -> int | None:
    """Lock a file, made with `mode`, for the life of this process; return its descriptor, None where another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    _held.append(descriptor)
    return descriptor


def release_stale_lock(folder: Path) -> bool:
    """Remove the Snakemake lock in `folder` that a killed orchestrator left; return whether there was one.

    Every orchestrator of this workflow, also one that only plans, keeps a shared kernel lock (flock) on a file for as long
    as it lives; the kernel frees it however the process ends. Whoever gets an exclusive one knows that no other one is
    running here, so that Snakemake's own lock files are left over. Whoever does not get it leaves them alone, and so does
    another host than the last one (a shared file system may keep flocks per host): then Snakemake refuses to start and says
    how to unlock.
    """
    state = folder / ".snakemake"
    state.mkdir(exist_ok=True)
    descriptor = os.open(state / "orchestrator", os.O_RDWR | os.O_CREAT, 0o666)
    _held.append(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        released = False
    else:
        released = _release(descriptor, state / "locks")
    with suppress(OSError):  # where a file system knows no such locks, no lock of Snakemake's is ever released
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return released


def _release(descriptor: int, locks: Path) -> bool:
    host = platform.node().encode()
    last = os.pread(descriptor, 1024, 0)
    stale = list(locks.glob("*.lock"))
    if stale and last not in (b"", host):
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, host, 0)
    for lock in stale:
        lock.unlink(missing_ok=True)
    return bool(stale)
