"""Time the intervals of an attack beside its scores, and a whole audit of one signal, in CPU seconds.

python benchmarks/interval_price.py [--records N] [--models K]  (20,000 × 33: half a minute)
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import AttackRun, attacks
from mia_audit.evaluation.intervals import without_each
from mia_audit.signals.name import Reading, read_signal

FPRS = (0.001, 0.01, 0.1)


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this process that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def priced(likelihood: str, values: np.ndarray, member: np.ndarray) -> tuple[float, float]:
    """Return the CPU seconds of a likelihood's scores, and those of the further scores for its intervals."""
    reading = Reading(read_signal("confidence"), [values])
    run = AttackRun("loss-lira", (reading.signal,), likelihood, null_control=False)
    scores: list[np.ndarray] = []
    first = seconds(lambda: scores.append(attacks[run.attack].score([reading], member, likelihood)))
    stored = scores[0].astype(np.float32)
    return first, seconds(lambda: without_each(run, [reading], member, stored, FPRS))


def example(records: int, models: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a membership and a signal, both [records, models], of records that differ in level."""
    random = np.random.default_rng(0)
    member = np.asfortranarray(random.random((records, models)) < 0.5)
    noise = random.normal(size=member.shape)
    values = 2 * random.normal(size=(records, 1)) + noise + 0.5 * member
    return member, np.asfortranarray(values, dtype=np.float32)


def audited(member: np.ndarray, values: np.ndarray, *options: str) -> tuple[float, float]:
    """Return the CPU and wall-clock seconds of `mia-audit audit` with these options."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "member.npy"), member)
        np.save(Path(folder, "confidence.npy"), values)
        given = ["--membership", f"{folder}/member.npy", "--signal", f"confidence={folder}/confidence.npy"]
        command = [sys.executable, "-m", "mia_audit.cli", "audit", *given, "--out", f"{folder}/out", *options]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return processor, time.perf_counter() - start


def main() -> None:
    """Print the seconds of scores and of intervals by likelihood, and those of an audit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--models", type=int, default=33)
    options = parser.parse_args()
    member, values = example(options.records, options.models)
    print("| likelihood | scores | intervals | both / scores |\n|---|---|---|---|")
    for likelihood in ("blend", "types", "hierarchical", "pooled"):
        first, further = priced(likelihood, values, member)
        print(f"| {likelihood} | {first:.2f} | {further:.2f} | {1 + further / first:.2f} |", flush=True)
    processor, wall = audited(member, values, "--no-report")
    print(
        f"\n`mia-audit audit --no-report`, {options.records:,} × {options.models}: {processor:.1f} CPU s, {wall:.1f} s"
    )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
