"""Files whose time lies in the future, because a clock was ahead when they were written."""

import os
import time
from contextlib import suppress
from pathlib import Path

TOLERANCE = 2.0
"""Seconds that the clock of a file server may be ahead of this machine's."""


def bring_back(folder: Path) -> int:
    """Set the time of every file below `folder` that lies in the future to now; return how many there were.

    Snakemake takes an output that is older than its input for a failure: what is made from such a file would be thrown
    away until the clock has caught up.
    """
    now = time.time()
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with suppress(FileNotFoundError):  # somebody else's temporary file
                if path.lstat().st_mtime > now + TOLERANCE:
                    os.utime(path, (now, now), follow_symlinks=False)
                    count += 1
    return count
