"""Measure time and memory of planning a large audit: 5 data sets × 5 architectures × 5 ε × 257 models, 32,125 in all.

    python benchmarks/plan_scale.py [MODELS [SHADOWS_PER_JOB]]

It is a dry run of the workflow in an empty folder, in a separate process. Prints the number of jobs, elapsed and
processor seconds, and the largest resident size.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mia_audit.planning.plan import read_counts

ROOT = Path(__file__).parents[1]


def large(models: int, per_job: int) -> dict[str, object]:
    """Return the config: five pools, a sweep of five networks, no privacy and four budgets."""
    return {
        "audit": "large",
        "datasets": {f"pool{number}": {"source": "breast_cancer", "records": 400} for number in range(5)},
        "membership": {"models": models},
        "architectures": {"net": {"model": "mlp", "sweep": {"width": [8, 16, 24, 32, 40]}}},
        "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [1, 2, 4, 8]}},
        "training": {"epochs": 2},
        "explainers": {"methods": ["ixg"]},
        "explanation_metrics": {"records": 0},
        "compute": {"shadows_per_job": per_job},
    }


def main(models: int = 257, per_job: int = 9) -> None:
    """Plan and measure."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "large.yaml")
        config.write_text(json.dumps(large(models, per_job)))
        words = [sys.executable, "-m", "snakemake", "--dryrun", "--quiet", "rules", "--cores", "1", "--profile", "none"]
        words += ["--scheduler", "greedy", "--snakefile", str(ROOT / "Snakefile"), "--configfile", str(config)]
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        start = time.monotonic()
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        elapsed = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    jobs = sum(read_counts(done.stdout + done.stderr).values())
    print(
        f"{5 * 5 * 5 * models:,} models, {jobs:,} jobs: {elapsed:.0f} s, {used.ru_utime + used.ru_stime:.0f} CPU seconds,"
        f" {used.ru_maxrss * 1024 / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
