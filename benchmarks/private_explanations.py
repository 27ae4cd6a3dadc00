"""How much quicker one weighted Gram matrix a query is than a pass over the records at every noisy step, at the same output.

    python benchmarks/private_explanations.py                    1,500 queries over 100,000 × 30 records, T = 300
    python benchmarks/private_explanations.py --records 20000    a quicker look

Both sides take the same noise. The direct loop computes ∇L from all records at every step (Patel et al. 2020, algorithm 1), on a
few queries, since it is slow; its time for all of them is what those took, scaled up. The largest difference of the outputs is printed.
"""

import argparse
import math
import time

import numpy as np

from mia_audit.explain.private_local import ExplanationSet, PrivateExplainer, Terms
from mia_audit.explain.private_local.solver import descend, learning_rate
from mia_audit.explain.weights import capped, kernels


def direct(
    explained: ExplanationSet, query: np.ndarray, value: float, noise: np.ndarray, rate: float, terms: Terms
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


def main() -> None:
    """Print both times, their ratio and how far the outputs differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--queries", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--direct", type=int, default=2, help="queries of the direct loop")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    records = random.standard_normal((options.records, options.features)).astype(np.float32)
    values = np.tanh(records[:, 0] + records[:, 1] * records[:, 2])
    explained = ExplanationSet.of(records, values)
    terms = Terms(epsilon=0.1, delta=1e-7, budget=1e6, steps=options.steps)
    wall, cpu = time.perf_counter(), time.process_time()
    service = PrivateExplainer(explained, terms, "non-adaptive", seed=0)
    service.answer(records[: options.queries], values[: options.queries])
    whole, whole_cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{options.queries:,} queries over {options.records:,} × {options.features}, T = {options.steps}:")
    print(f"  one Gram matrix a query   {whole:9.1f} s   {whole_cpu:9.1f} s of CPU")

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
