"""Functions for the machine on which the workflow is started, if its jobs run on SLURM.

Make the commands of jobs available on PATH, however Snakemake itself was started.

Remove the lock that a killed run of Snakemake leaves.

Files whose modification time is in the future, because a clock was ahead when they were written.
"""

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.regular_files import open_regular


def prepend(folder: Path) -> None:
    """Put a folder first on this process's PATH. The jobs that this process starts inherit it."""
    known = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([str(folder), *(path for path in known if path != str(folder))])


def prepend_environment() -> None:
    """Put this Python's folder of programs first on PATH, unless PATH names it already.

    If Snakemake is started by its path in a virtual environment that is not activated, it then starts that
    environment's commands. On SLURM every job's own Snakemake process does the same. A PATH that names the folder keeps
    its order, so that a user can put a program of their own before it.
    """
    programs = Path(sys.executable).parent
    if str(programs) not in os.environ.get("PATH", "").split(os.pathsep):
        prepend(programs)


def put_first_on_path(folder: Path) -> bool:
    """If SLURM is installed, put `folder` first on this process's PATH. Return whether SLURM is installed.

    The wrappers in workflow/profiles/slurm/bin call SLURM's own programs: `sacct` reports a cancelled job in the form
    that Snakemake's plugin understands, and `sbatch` waits while the controller cannot be reached.
    """
    if not shutil.which("sacct"):
        return False
    prepend(folder)
    return True


EXECUTOR = "slurm"
"""The name of Snakemake's executor plugin for SLURM."""
TIMEOUT = 30.0
"""Time limit for SLURM's controller to answer, in seconds."""


def partition_has_gpus(partition: str = "") -> bool:
    """Return whether all nodes of SLURM's partition have GPUs, by `sinfo`.

    Without a name, the default partition is queried. If there are several names, separated by commas, one partition
    with GPUs is enough.

    If only some nodes of a partition have GPUs, jobs do not request one, because most of the partition would stay idle.
    """
    said = _sinfo("--format=%P %G")
    if said is None:
        return False
    wanted = partition.split(",")
    rows = (line.split(maxsplit=1) for line in said.splitlines() if " " in line.strip())
    having: dict[str, bool] = {}
    for name, gres in rows:
        if name.rstrip("*") in wanted if partition else name.endswith("*"):
            having[name] = having.get(name, True) and bool(re.search(r"(^|,)gpu:", gres))
    return any(having.values())


def node_memory() -> int | None:
    """Return the megabytes of SLURM's largest node; None if unknown."""
    said = _sinfo("--exact", "--format=%m") or ""
    return max(map(int, re.findall(r"^(\d+)\+?\s*$", said, re.MULTILINE)), default=None)


def _sinfo(*options: str) -> str | None:
    """Return what `sinfo` prints without its header; None if it fails or is not installed."""
    words = ["sinfo", "--noheader", *options]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


RUN_ID = re.compile(
    r"^SLURM run ID: ((?:[\w.-]+_)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$",
    re.MULTILINE | re.ASCII,
)
"""Pattern of the plugin's first message, printed before any message on a job: a UUID, perhaps with a prefix."""


def cancel_jobs_of(log: Path, executor: str) -> None:
    """If the run with this Snakemake log and executor used SLURM, cancel its jobs in SLURM's queue.

    When a run is interrupted, Snakemake's plugin cancels the jobs on its list of active ones. That list is empty while
    the plugin queries SLURM for job states, and it lacks jobs that are just being submitted.
    """
    if executor == EXECUTOR and (run := RUN_ID.search(log.read_text(encoding="utf-8", errors="replace"))):
        subprocess.run(["scancel", f"--name={run[1]}"], check=False)


MISTAKE, CURABLE = "mia-audit: ", ("memory", "interrupted")
"""The beginning of the last line in the log of a job that a user's mistake ended, and words of those that a retry may cure."""
TRANSIENT = ("timed out", "slurm controller")
"""Words of the submissions that a retry may cure."""


def run_mistakes_once() -> None:
    """Let Snakemake not run a job again if no further attempt cures it (`retries`): one that a mistake ended, or that sbatch refuses."""
    from snakemake.jobs import Job
    from snakemake_interface_executor_plugins.executors.base import AbstractExecutor

    refused = set[Job]()
    report = AbstractExecutor.report_job_error

    def reported(executor: AbstractExecutor, job_info: Any, msg: str | None = None, **more: Any) -> None:
        if re.search("sbatch failed|failed array sbatch", msg or "") and not any(
            word in str(msg) for word in TRANSIENT
        ):
            refused.add(job_info.job)
        report(executor, job_info, msg, **more)

    def times(job: Job) -> int:
        ended = job in refused or any(map(_of_mistake, map(Path, job.log)))
        return 0 if ended else int(job.rule.restart_times)

    AbstractExecutor.report_job_error = reported
    Job.restart_times = property(times)


def _of_mistake(log: Path) -> bool:
    """Return whether a job's log ends in the line of a user's mistake; on a node, more memory may cure a lack of it."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last.startswith(MISTAKE) and not any(word in last for word in CURABLE)


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
    try:
        state.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{state}: {os.strerror(error.errno or 0).lower()}; work in a folder that can be written"
        ) from None
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
