"""The number of an audit's jobs, from a dry run of the workflow, and advice on jobs that are too short."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.planning.estimate import LIGHT, START_UP, Plan

MOST = 0.1
"""Largest acceptable share of start-up in a job's time."""

SIZED_BY = {"train": "shadows_per_job", "signals": "blocks_explained_per_job"}
"""Rules whose jobs have a configurable size, with the key of `compute` for that size."""


def count_jobs(config: Path, checkout: Path, changes: Mapping[str, Any] | None = None) -> dict[str, int]:
    """Return the number of a new audit's jobs by rule, counted by a dry run from the checkout, which changes no results.

    `changes` are values that replace keys of the config. Raises UserError if the folder has no workflow, or the workflow does not accept the config.
    """
    snakefile = checkout / "Snakefile"
    if not snakefile.exists():
        raise UserError(
            f"{snakefile}: no such workflow, so jobs cannot be counted: run in the checkout, or give --checkout"
        )
    words = ["--dryrun", "--quiet", "rules", "--cores", "1", "--nolock", "--scheduler", "greedy"]
    words += ["--forceall", "--profile", "none"]  # a profile that the user's environment names may set anything
    words += ["--snakefile", str(snakefile), "--configfile", str(config)]
    words += ["--config", *(f"{key}={json.dumps(value)}" for key, value in changes.items())] if changes else []
    result = subprocess.run(
        [sys.executable, "-m", "snakemake", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        message = " ".join((result.stderr or result.stdout).split())[-400:]
        raise UserError(f"{config}: the workflow does not accept this config: {message}")
    return read_counts(result.stdout + result.stderr)


def read_counts(output: str) -> dict[str, int]:
    """Read the table of jobs per rule that Snakemake prints, without `all` and the total."""
    lines = output.splitlines()
    rule = next((index for index, line in enumerate(lines) if line.startswith("---")), len(lines))
    counts = {}
    for line in lines[rule + 1 :]:
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            break
        counts[words[0]] = int(words[1])
    return {name: count for name, count in counts.items() if name not in ("all", "total")}


def advice(plan: Plan, audit: Audit, jobs: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for every rule whose jobs spend more than `MOST` of their time on start-up. It recommends a larger size."""
    for rule, key in SIZED_BY.items():
        work = sum(seconds for stage, seconds in plan.seconds.items() if stage.startswith(rule))
        start = START_UP.get(rule, LIGHT) * jobs.get(rule, 0)
        if not work or start <= MOST * (start + work):
            continue
        size = audit.compute.block_size if rule == "train" else audit.compute.blocks_explained_per_job
        wanted = ceil(size * start * (1 - MOST) / MOST / work)
        per_block = 1 if rule == "train" else audit.compute.block_size
        largest = ceil(audit.membership.models / per_block)
        if size >= largest:
            continue
        effect = "makes start-up a tenth" if wanted <= largest else "is the largest possible size"
        yield (
            f"On a cluster, {start / (start + work):.0%} of a {rule} job is start-up; compute.{key}: {min(wanted, largest)}"
            f" {effect}, if fewer jobs still keep the machines busy"
        )
