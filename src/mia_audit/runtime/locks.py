"""Remove the lock that a killed run of Snakemake leaves."""

import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.regular_files import open_regular

_held: list[int] = []
"""Descriptors of locked files, open until the process ends."""


def release_stale_lock(folder: Path) -> bool:
    """Remove the Snakemake lock that a killed orchestrator left in `folder`; return whether there was one.

    Every orchestrator of this workflow, even one that only plans, holds a shared kernel lock (flock) on a file while it
    lives. The kernel releases this lock however the process ends. A process that gets the exclusive lock knows that no
    other orchestrator runs here, so Snakemake's lock files are stale. If a process does not get it, or runs on another
    host than the last orchestrator (a shared file system may keep flocks per host), the lock files stay. Snakemake then
    refuses to start, and says how to unlock. Raises UserError if one of these files is a link.
    """
    state = folder / ".snakemake"
    state.mkdir(exist_ok=True)
    for place in (state, state / "locks"):
        if place.is_symlink():
            raise UserError(f"{place}: a symbolic link, through which other files would be removed. Remove the link")
    descriptor = open_regular(  # filelock has no shared flock; a folder may be shared by several users
        state / "orchestrator", os.O_RDWR | os.O_CREAT, 0o666, own=False, single=True
    )
    _held.append(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        released = False
    else:
        released = _release(descriptor, state / "locks")
    with suppress(OSError):  # on a file system without flock, Snakemake's lock is never considered stale
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return released


def _release(descriptor: int, locks: Path) -> bool:
    host = platform.node().encode()
    last_host = os.pread(descriptor, 1024, 0)
    stale = list(locks.glob("*.lock"))
    if stale and last_host not in (b"", host):
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, host, 0)
    for lock in stale:
        lock.unlink(missing_ok=True)
    return bool(stale)
