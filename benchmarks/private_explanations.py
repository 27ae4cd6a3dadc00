"""Compare one weighted Gram matrix per query with a pass over the records at every noisy step: time, and equality of outputs.

    python benchmarks/private_explanations.py                    1,500 queries over 100,000 × 30 records, T = 300
    python benchmarks/private_explanations.py --records 20000    a quicker look
    python benchmarks/private_explanations.py --mapped --records 1500000 --features 100 --queries 50 --direct 0
                                                                 records on disk: the memory for streaming them
    python benchmarks/private_explanations.py --rates            losses of warm starts by two learning rates, in a minute

Both sides use the same noise. The direct loop computes ∇L from all records at every step (Patel et al. 2020, algorithm
1). It is slow, so it answers only a few queries, and its time is scaled up to all queries. Prints the largest
difference of the outputs.
"""

import argparse
import math
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from mia_audit.explain.private_local.history import WARM
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.solver import Problem, descend, learning_rate, minimum
from mia_audit.explain.private_local.terms import ExplanationTerms, capped, kernels


def direct(
    explained: ExplanationSet, query: np.ndarray, value: float, noise: np.ndarray, rate: float, terms: ExplanationTerms
) -> np.ndarray:
    """Take the noisy steps with a pass over the records at each."""
    away = explained.points(np.asarray(explained.records)) - query
    weights = capped(kernels[terms.kernel], np.linalg.norm(away, axis=1), terms.c, terms.span)
    target = explained.values[:, 0] - value
    current = np.zeros(len(query))
    for step, draw in enumerate(noise):
        gradient = 2 / len(away) * ((weights * (away @ current - target)) @ away)
        current -= rate / math.sqrt(step + 1) * (gradient + draw)
        current /= max(1.0, float(np.linalg.norm(current)))
    return current


def made(records: int, features: int, folder: str | None) -> np.ndarray:
    """Generate records in memory or, if `folder` is given, in a file there that is then memory-mapped."""
    random = np.random.default_rng(0)
    if folder is None:
        return random.standard_normal((records, features)).astype(np.float32)
    path, block = Path(folder) / "records.npy", 50_000
    file = np.lib.format.open_memmap(path, "w+", np.float32, (records, features))
    for first in range(0, records, block):
        file[first : first + block] = random.standard_normal((len(file[first : first + block]), features))
    file.flush()
    del file
    mapped: np.ndarray = np.load(path, mmap_mode="r")
    return mapped


class Memory(threading.Thread):
    """A thread that watches the process's private memory, without pages of a mapped file, which the system can reclaim."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = self.now()

    @staticmethod
    def now() -> int:
        """Return the megabytes of private memory."""
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) // 1024

    def run(self) -> None:
        """Read the memory twenty times per second."""
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.05)


class WarmRate(PrivateExplainer):
    """Takes the steps of a warm start at the learning rate of equation 11, which depends on its gradient's norm β."""

    def _descend(self, problem: Problem, start: np.ndarray, noise: np.ndarray) -> np.ndarray:
        if not start.any():
            return super()._descend(problem, start, noise)
        spread = len(start) * self.deviation**2
        both = spread + np.linalg.norm(problem.gradient(start)) ** 2
        rate = math.sqrt(2 / (both + math.sqrt(both**2 + 12 * spread * math.log(max(2, noise.shape[1])))))
        (last,) = descend([problem], start[None], noise, rate)
        return last


def rates(repetitions: int = 10) -> None:
    """Print the mean excess losses of warm starts by both rates, and their paired difference with a 95 % t interval."""
    random = np.random.default_rng(2)
    records = (random.standard_normal((15, 20))[random.integers(15, size=20_000)] * 2).astype(np.float32)
    records += 0.5 * random.standard_normal(records.shape).astype(np.float32)
    labels = np.sign(records @ random.standard_normal(20) + 2 * np.sin(records[:, 0]))
    for epsilon in (0.1, 1.0):
        terms = ExplanationTerms(epsilon=epsilon, delta=1e-6, budget=1e6, steps=300)
        found = []
        for seed in range(repetitions):
            queries = np.random.default_rng(seed).permutation(len(records))[:60]
            explained = ExplanationSet.from_arrays(records, labels)
            points, at = explained.points(records[queries]), labels[queries]
            problems = list(explained.problems(points, at, np.zeros(len(queries), dtype=int), terms))
            least = [problem.loss(minimum(problem)) for problem in problems]
            losses = []
            for kind in (PrivateExplainer, WarmRate):
                answers = kind(explained, terms, "adaptive", seed=seed).answer(records[queries], at[:, None])
                excess = [
                    one.loss(phi) - low for one, phi, low in zip(problems, answers.explanations, least, strict=True)
                ]
                losses.append(
                    np.mean([loss for loss, source in zip(excess, answers.source, strict=True) if source == WARM])
                )
            found.append(losses)
        ours, theirs = np.array(found).T
        half = student.ppf(0.975, repetitions - 1) * (theirs - ours).std(ddof=1) / math.sqrt(repetitions)
        print(f"ε = {epsilon}: {ours.mean():.5f} ours, {theirs.mean():.5f} by equation 11;", end=" ")
        print(f"theirs − ours {(theirs - ours).mean():.5f} ± {half:.5f}")


def main() -> None:
    """Print both times, their ratio and the difference of the outputs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--queries", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--direct", type=int, default=2, help="queries of the direct loop")
    parser.add_argument("--mapped", action="store_true", help="records in a memory-mapped file")
    parser.add_argument("--rates", action="store_true", help="compare learning rates of warm starts instead")
    options = parser.parse_args()
    if options.rates:
        rates()
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(options, made(options.records, options.features, folder if options.mapped else None))


def measure(options: argparse.Namespace, records: np.ndarray) -> None:
    """Explain queries by both methods."""
    random = np.random.default_rng(1)
    values = np.tanh(records[:, 0] + records[:, 1] * records[:, 2])
    memory = Memory()
    memory.start()
    explained = ExplanationSet.from_arrays(records, values)
    terms = ExplanationTerms(epsilon=0.1, delta=1e-7, budget=1e6, steps=options.steps)
    wall, cpu = time.perf_counter(), time.process_time()
    service = PrivateExplainer(explained, terms, "non-adaptive", seed=0)
    service.answer(records[: options.queries], values[: options.queries])
    whole, whole_cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{options.queries:,} queries over {options.records:,} × {options.features}, T = {options.steps}:")
    print(
        f"  one Gram matrix a query   {whole:9.1f} s   {whole_cpu:9.1f} s of CPU   {memory.peak} MB of its own at most,"
        f" {memory.before} of them before"
    )
    if not options.direct:
        return
    points = explained.points(records[: options.direct])
    noise = random.standard_normal((len(points), terms.steps, options.features)) * service.deviation
    rate = learning_rate(terms.c, service.deviation, options.features)
    at = explained.values[: len(points), 0]
    problems = list(explained.problems(points, at, np.zeros(len(points), dtype=int), terms))
    quick = descend(problems, np.zeros_like(points), noise, rate)
    cpu = time.process_time()
    slow = np.array([direct(explained, *given, rate, terms) for given in zip(points, at, noise, strict=True)])
    scaled = (time.process_time() - cpu) * options.queries / len(points)
    print(f"  a pass at every step                      {scaled:9.1f} s of CPU (from {len(points)} queries)")
    print(f"  ratio {scaled / whole_cpu:.0f}; largest difference of the outputs {np.abs(quick - slow).max():.1e}")


if __name__ == "__main__":
    main()
