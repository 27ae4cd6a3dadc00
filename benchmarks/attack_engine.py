"""Compare the leave-one-out engine with the loop over targets that it replaces, on random signals.

    python benchmarks/attack_engine.py [RECORDS MODELS]

Both sides compute the pooled and the per-record likelihood ratio of one signal in float64 on one thread. There are two loops,
and so two ratios of times, which differ widely:

- `loop over records`: for every target, record by record, numpy's mean and standard deviation of the few values on each
  side, as in published attack code (some 80 µs per record and target). Speed-ups of hundreds of times refer to this loop.
- `vectorised loop`: for every target, all records at once by masked reductions, the best that a loop over targets does.

The loops are measured on TARGETS targets, and on RECORDS records of one target, and scaled up. CPU seconds; the scores
are compared. On a busy machine, 20,000 records, per-record likelihood: 13 times the vectorised loop and 520 times the loop
over records with 33 models, 150 and 760 times with 257.
"""

import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.engine.likelihood import likelihood_ratio
from mia_audit.attacks.engine.ratios import RATIOS

TARGETS, RECORDS = 6, 500


def loop(signal: np.ndarray, member: np.ndarray, likelihood: str, target: int) -> np.ndarray:
    """Score one target: mask, centre and reduce the other models' values."""
    others = np.arange(signal.shape[1]) != target
    x, here = signal[:, others], member[:, others]
    logs = []
    for side in (here, ~here):
        count = side.sum(axis=1)
        mean = np.where(side, x, 0).sum(axis=1) / count
        squares = np.where(side, (x - mean[:, None]) ** 2, 0).sum(axis=1)
        spread = squares / count if likelihood == "per-record" else squares.sum() / (count - 1).sum()
        logs.append(-0.5 * (np.log(spread) + (signal[:, target] - mean) ** 2 / spread))
    return logs[0] - logs[1]


def by_record(signal: np.ndarray, member: np.ndarray, target: int) -> list[float]:
    """Score one target record by record, with the record's own likelihoods."""
    others = np.arange(signal.shape[1]) != target
    scores = []
    for values, here, x in zip(signal[:, others], member[:, others], signal[:, target], strict=True):
        logs = []
        for side in (values[here], values[~here]):
            mean, deviation = np.mean(side), np.std(side)
            logs.append(-np.log(deviation) - (x - mean) ** 2 / (2 * deviation**2))
        scores.append(logs[0] - logs[1])
    return scores


def main(records: int, models: int) -> None:
    """Print one line per likelihood."""
    rng = np.random.default_rng(0)
    member = np.asfortranarray(rng.random((records, models)) < 0.5)
    signal = np.asfortranarray(rng.normal(size=(records, 1)) + rng.normal(size=(records, models)) + 0.5 * member)
    print(f"{records} records × {models} models, one signal, CPU seconds")
    for likelihood in ("pooled", "per-record"):
        start = time.process_time()
        scores = likelihood_ratio(signal, member, likelihood)
        engine = time.process_time() - start
        targets = range(min(TARGETS, models))
        start = time.process_time()
        expected = [loop(signal, member, likelihood, target) for target in targets]
        looped = (time.process_time() - start) * models / len(targets)
        for target in targets:
            np.testing.assert_allclose(scores[:, target], expected[target], rtol=1e-6, atol=1e-6)
        line = f"{likelihood:12} engine {engine:6.2f}   vectorised loop {looped:8.1f} ({looped / engine:.0f} times)"
        if likelihood == "per-record":
            start = time.process_time()
            single = by_record(signal[:RECORDS], member[:RECORDS], 0)
            slow = (time.process_time() - start) * models * records / RECORDS
            np.testing.assert_allclose(scores[:RECORDS, 0], single, rtol=1e-6, atol=1e-6)
            line += f"   loop over records {slow:8.1f} ({slow / engine:.0f} times)"
        print(line)
    start = time.process_time()
    RATIOS["hierarchical"](signal, member)
    print(f"{'hierarchical':12} engine {time.process_time() - start:6.2f}")


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:]] or [20_000, 33, 20_000, 257]
    with threadpool_limits(1):
        for first in range(0, len(sizes), 2):
            main(*sizes[first : first + 2])
