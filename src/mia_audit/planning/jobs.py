"""How many jobs of which rule an audit has: what the workflow itself says in a dry run."""

import subprocess
import sys
from pathlib import Path

from mia_audit.errors import UserError


def count_jobs(config: Path, checkout: Path) -> dict[str, int]:
    """Return the jobs of every rule of a whole audit, as a dry run from the checkout counts them; results there are left alone.

    Raises UserError where the folder holds no workflow, or the workflow refuses the config.
    """
    snakefile = checkout / "Snakefile"
    if not snakefile.exists():
        raise UserError(f"{snakefile}: no workflow there to count the jobs of: run in the checkout, or give --checkout")
    words = ["--dryrun", "--forceall", "--quiet", "rules", "--cores", "1", "--nolock", "--scheduler", "greedy"]
    words += ["--profile", "none"]  # the user's own, in the environment, may do anything
    words += ["--snakefile", str(snakefile), "--configfile", str(config)]
    told = subprocess.run(
        [sys.executable, "-m", "snakemake", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if told.returncode:
        raise UserError(f"{config}: the workflow refuses it: {' '.join((told.stderr or told.stdout).split())[-400:]}")
    return read_counts(told.stdout + told.stderr)


def read_counts(told: str) -> dict[str, int]:
    """Read the table of jobs per rule that Snakemake prints, without `all` and the total."""
    lines = told.splitlines()
    rule = next((index for index, line in enumerate(lines) if line.startswith("---")), len(lines))
    counts = {}
    for line in lines[rule + 1 :]:
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            break
        counts[words[0]] = int(words[1])
    return {name: count for name, count in counts.items() if name not in ("all", "total")}
