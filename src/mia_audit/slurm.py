"""What the workflow needs of the machine it is started on when SLURM does the work."""

import os
import shutil
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
