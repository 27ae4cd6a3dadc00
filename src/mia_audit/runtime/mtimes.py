"""Files whose modification time is in the future, because a clock was ahead when they were written."""

import os
import time
from contextlib import suppress
from pathlib import Path

TOLERANCE = 2.0
"""Number of seconds by which a file server's clock may be ahead of this machine's."""


def clamp_future_mtimes(folder: Path) -> int:
    """Set modification times in the future to now, for all files below `folder`; return the number of these files.

    Snakemake treats an output that is older than its input as a failure, so every job that reads such a file would fail
    until the clock has caught up.
    """
    now = time.time()
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with suppress(FileNotFoundError):  # another process has removed its temporary file meanwhile
                if path.lstat().st_mtime > now + TOLERANCE:
                    os.utime(path, (now, now), follow_symlinks=False)
                    count += 1
    return count
