"""How much memory a job can have at most: that of this machine, or of the largest node that SLURM has for it."""

import re
import subprocess
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/memory.max")
TIMEOUT = 30.0
"""Seconds that SLURM's controller may take to answer."""


def machine_memory() -> int:
    """Return the megabytes of this machine, or of the control group that this process may not leave."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        limit = CGROUP.read_text().strip()
    except OSError:
        limit = "max"
    return (min(total, int(limit)) if limit.isdigit() else total) // 10**6


def node_memory() -> int | None:
    """Return the megabytes of SLURM's largest node; None where it does not say."""
    words = ["sinfo", "--noheader", "--exact", "--format=%m"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return max(map(int, re.findall(r"^(\d+)\+?\s*$", said, re.MULTILINE)), default=None)
