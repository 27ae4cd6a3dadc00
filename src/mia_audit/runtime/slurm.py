"""Functions for the machine on which the workflow is started, if its jobs run on SLURM."""

import re
import shutil
import subprocess
from pathlib import Path

from mia_audit.runtime.search_path import prepend


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
