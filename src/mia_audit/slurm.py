"""What the workflow needs of the machine it is started on when SLURM does the work."""

import os
import re
import shutil
import subprocess
from pathlib import Path


def put_first_on_path(folder: Path) -> bool:
    """Let this process find `folder`'s sacct and sbatch before SLURM's own, where there are any; return whether there are.

    Those in workflow/profiles/slurm/bin call SLURM's: one tells of cancelled jobs in the words of Snakemake's plugin, the
    other waits while the controller is away.
    """
    known = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if not shutil.which("sacct"):
        return False
    os.environ["PATH"] = os.pathsep.join([str(folder), *(path for path in known if path != str(folder))])
    return True


def cancel_jobs_of(log: Path) -> None:
    """Cancel what is left in the queue of the run that wrote this Snakemake log, if SLURM did its work.

    When a run is interrupted, Snakemake's plugin cancels the jobs that it has on its list. It takes all of them off while it
    asks SLURM how they are, and puts those on that are being submitted too late.
    """
    if run := re.search(r"SLURM run ID: (\S+)", log.read_text(encoding="utf-8")):
        subprocess.run(["scancel", f"--name={run[1]}"], check=False)
