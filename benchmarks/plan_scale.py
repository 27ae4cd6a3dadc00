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


def planned(models: int = 257, per_job: int = 9) -> tuple[int, float, float, float]:
    """Plan, and return the number of jobs, elapsed and processor seconds, and gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "large.yaml")
        config.write_text(json.dumps(large(models, per_job)))
        words = [sys.executable, "-m", "snakemake", "--dryrun", "--quiet", "rules", "--cores", "1", "--profile", "none"]
        words += ["--scheduler", "greedy", "--snakefile", str(ROOT / "Snakefile"), "--configfile", str(config)]
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        elapsed = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    jobs = sum(read_counts(done.stdout + done.stderr).values())
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return jobs, elapsed, processor, after.ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    jobs, elapsed, processor, size = planned(*(int(word) for word in sys.argv[1:]))
    print(f"{jobs:,} jobs: {elapsed:.0f} s, {processor:.0f} CPU seconds, {size:.2f} GB")
