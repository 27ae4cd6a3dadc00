"""Compare the estimate of `mia-audit plan` with an audit's measured processor seconds, in one run.

    python benchmarks/plan.py                                 the table's audit (a minute or two)
    python benchmarks/plan.py --config config/digits.yaml     the digits (five minutes)
    python benchmarks/plan.py --config config/huang2024/svhn-smoke.yaml --pool svhn=120,3x32x32,10 \\
        --before "$PWD/config/huang2024/sample_images.py results/samples/svhn --images 120 --classes 10 --size 32"
    python benchmarks/plan.py --planning                      the time that planning takes, for every config (ten minutes)

The audit runs in a separate folder, one job at a time, with the code of this checkout. Its seconds are those of all its
jobs and of Snakemake itself, which the plan counts as part of the jobs' start-up.
"""

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def processor_seconds(words: list[str], folder: Path) -> tuple[float, str]:
    """Run a command; return the processor seconds of it and of all processes that it started, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def seconds_by_stage(results: Path) -> dict[str, float]:
    """Return the processor seconds that all jobs report, by stage of the plan; those of training and signals are added up."""
    seconds: dict[str, float] = {}
    for path in sorted(results.rglob("benchmarks/**/*.tsv")):
        parts = path.relative_to(results).parts  # below a folder for each seed, if there are several
        rule = parts[parts.index("benchmarks") + 1].removesuffix(".tsv")
        with path.open(encoding="utf-8", newline="") as file:
            used = sum(float(row["cpu_seconds"]) for row in csv.DictReader(file, delimiter="\t"))
        seconds[rule] = seconds.get(rule, 0.0) + used
    return seconds


def time_planning(configs: list[Path]) -> None:
    """Print the processor seconds and the seconds that planning takes, or why a config cannot be planned here."""
    for config in configs or sorted((ROOT / "config").rglob("*.yaml")):
        words = ["-m", "mia_audit.cli", "plan", str(config), "--json"]
        name = str(config.relative_to(ROOT))
        start = time.perf_counter()
        try:
            seconds, _ = processor_seconds([sys.executable, *words], ROOT)
        except subprocess.CalledProcessError:
            print(f"{name:40} refused, for the reason above", flush=True)
        else:
            elapsed, load = time.perf_counter() - start, os.getloadavg()[0]
            print(f"{name:40} {seconds:6.1f} s, {elapsed:6.1f} s elapsed at a load of {load:.1f}", flush=True)


def main() -> None:
    """Plan, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "config" / "breast_cancer.yaml")
    parser.add_argument(
        "--before", help="a Python script with its arguments that creates the audit's images, run in its folder first"
    )
    parser.add_argument("--pool", action="append", default=[], help="as that of mia-audit plan")
    parser.add_argument(
        "--planning", type=Path, nargs="*", help="only measure the time of planning, for these configs or for all"
    )
    options = parser.parse_args()
    if options.planning is not None:
        time_planning([path.resolve() for path in options.planning])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = str(shutil.copy(options.config, folder))
        if options.before:
            processor_seconds([sys.executable, *options.before.split()], folder)
        words = ["-m", "mia_audit.cli", "plan", config, "--json"]
        words += [word for pool in options.pool for word in ("--pool", pool)]
        planning, told = processor_seconds([sys.executable, *words], folder)
        plan = json.loads(told)
        words = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", config, "--cores", "1", "--quiet", "all"]
        taken, _ = processor_seconds([sys.executable, "-m", "snakemake", *words], folder)
        stages = seconds_by_stage(folder / "results")
        used = sum(path.stat().st_size for path in (folder / "results").rglob("*") if path.is_file())
    planned: dict[str, float] = {}
    for stage, hours in plan["hours"].items():
        rule = stage.split()[0] if stage.startswith(("train ", "signals ")) else stage
        planned[rule] = planned.get(rule, 0.0) + 3600 * hours
    stages["start-up"] = taken - sum(stages.get(stage, 0.0) for stage in planned)
    for stage, seconds in planned.items():
        print(f"{stage:24}{seconds:8.1f} s planned {stages.get(stage, 0.0):8.1f} s measured")
    said, disk = 3600 * plan["total_hours"], sum(plan["disk_bytes"].values())
    print(
        f"planned {said:.0f} s, measured {taken:.0f} s of processor time: ratio {said / taken:.2f} (planning took {planning:.0f} s)"
    )
    print(f"planned {disk / 1e6:.1f} MB, measured {used / 1e6:.1f} MB on disk: ratio {disk / used:.2f}")


if __name__ == "__main__":
    main()
