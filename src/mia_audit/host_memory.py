"""The memory available to this process: that of the machine, limited by control groups (a container, a SLURM job) and
by the process's address space.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED = 1 << 62
"""In version 1 of control groups, a limit of this many bytes or more means that there is no limit."""


def whole_memory() -> int:
    """Return the bytes of this machine, or of the smallest control group around this process."""
    import psutil

    return min([int(psutil.virtual_memory().total), *(limit for limit, _ in _limits())])


def available_memory() -> int:
    """Return the bytes that this process may still allocate."""
    import psutil

    free = [int(psutil.virtual_memory().available), *(limit - used for limit, used in _limits())]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        free.append(soft - int(psutil.Process().memory_info().vms))
    return max(0, min(free))


def _limits() -> Iterator[tuple[int, int]]:
    """Yield limit and use, in bytes, of every control group around this process; cached files that can be dropped are not counted."""
    for folder, limit_name, used_name, cached in _groups():
        limit, used = (_number(folder / name) for name in (limit_name, used_name))
        if limit is not None and used is not None and limit < UNLIMITED:
            try:
                dropped = re.search(rf"^{cached} (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
            except OSError:
                dropped = None
            yield limit, max(0, used - (int(dropped[1]) if dropped else 0))


def _groups() -> Iterator[tuple[Path, str, str, str]]:
    """Yield the folders of the control groups around this process, innermost first, with the names of limit, use and cached files."""
    try:
        lines = MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root, names = CGROUP, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = CGROUP / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield root / folder, *names


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
