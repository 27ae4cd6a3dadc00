"""Files with a modification time in the future, because a clock was ahead when they were written."""

import os
import time
from contextlib import suppress
from pathlib import Path

TOLERANCE = 2.0
"""Tolerated lead of a file server's clock over this machine's, in seconds."""


def clamp_future_mtimes(folder: Path) -> int:
    """Set every modification time below `folder` that lies in the future to now; return how many there were.

    Snakemake treats an output that is older than its input as a failure, so every job that reads such a file would fail
    until the clock has caught up.
    """
    now = time.time()
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with suppress(FileNotFoundError):  # a temporary file of another process, removed meanwhile
                if path.lstat().st_mtime > now + TOLERANCE:
                    os.utime(path, (now, now), follow_symlinks=False)
                    count += 1
    return count
