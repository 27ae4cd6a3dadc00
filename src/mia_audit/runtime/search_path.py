"""Make the commands of jobs available on PATH, however Snakemake itself was started."""

import os
import sys
from pathlib import Path


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
