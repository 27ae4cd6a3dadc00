"""The largest memory of a job: that of this machine, or of the largest node that SLURM has for it."""

import re
import subprocess
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/memory.max")
TIMEOUT = 30.0
"""Time limit for SLURM's controller to answer, in seconds."""


def machine_memory() -> int:
    """Return the megabytes of this machine, or of the control group of this process."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        limit = CGROUP.read_text().strip()
    except OSError:
        limit = "max"
    return (min(total, int(limit)) if limit.isdigit() else total) // 10**6


def node_memory() -> int | None:
    """Return the megabytes of SLURM's largest node; None if unknown."""
    words = ["sinfo", "--noheader", "--exact", "--format=%m"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return max(map(int, re.findall(r"^(\d+)\+?\s*$", said, re.MULTILINE)), default=None)
