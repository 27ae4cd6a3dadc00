"""Run the workflow in a process of its own."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mia_audit.errors import UserError


def run_workflow(config: str | Path, cores: int, words: Sequence[str], checkout: str | Path) -> None:
    """Run the workflow of a checkout on a config; `words` are further ones of snakemake's command line.

    Raises UserError where the folder holds no workflow, and where the workflow fails.
    """
    snakefile = Path(checkout, "Snakefile")
    if not snakefile.is_file():
        raise UserError(
            f"{snakefile}: no workflow there; run in the checkout of mia-audit, or give its folder: checkout"
        )
    line = ["--snakefile", snakefile, "--configfile", config, "--cores", cores, "--logger", "mia-audit", *words]
    done = subprocess.run([sys.executable, "-m", "snakemake", *map(str, line)], check=False)
    if done.returncode:
        raise UserError(f"{config}: the workflow failed; what failed, and its log, are named above")
