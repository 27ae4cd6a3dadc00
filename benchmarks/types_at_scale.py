"""Measure CPU seconds and memory of the likelihoods `types`, `hierarchical` and `blend` on two signals of a paper's largest audit.

    python benchmarks/types_at_scale.py [RECORDS MODELS]        (60,000 records, 257 models: two minutes of one core)

Signals are synthetic: records differ in level and shift, and hard records have heavy tails. Each likelihood runs in a
separate process, whose peak memory includes the signals. `types` may take a minute and 3 GB.
"""

import multiprocessing
import resource
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.engine.joint import JOINT_RATIOS
from mia_audit.evaluation.metrics import auc

LIKELIHOODS = ("types", "hierarchical", "blend")


def drawn(records: int, models: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return two signals, [records, models], and the membership; members of easy records differ little."""
    random = np.random.default_rng(0)
    member = np.asfortranarray(random.random((records, models)) < 0.5)
    hard = random.random((records, 1)).astype(np.float32)
    signals = []
    for strength in (0.8, 0.3):
        noise = random.standard_normal((records, models), dtype=np.float32)
        signals.append(
            np.asfortranarray(4 * (1 - hard) + (0.3 + hard) * noise + strength * hard * member, dtype=np.float64)
        )
    return signals, member


def measure(likelihood: str, records: int, models: int) -> tuple[float, float, float]:
    """Return CPU seconds, peak memory in GB, and the mean AUC of the first eight targets."""
    signals, member = drawn(records, models)
    with threadpool_limits(1):
        start = time.process_time()
        scores = JOINT_RATIOS[likelihood](signals, member)
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return seconds, peak, float(np.mean([auc(scores[:, k], member[:, k]) for k in range(8)]))


def main(records: int, models: int) -> None:
    """Print a line per likelihood."""
    print(f"{records:,} records × {models} models × 2 signals", flush=True)
    for likelihood in LIKELIHOODS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, peak, area = pool.apply(measure, (likelihood, records, models))
        print(f"{likelihood:12} {seconds:6.1f} s   {peak:4.1f} GB   AUC {area:.4f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or (60_000, 257)))
