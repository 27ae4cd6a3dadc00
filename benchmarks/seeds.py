"""Simulate the coverage of intervals over seeds: how often they contain the mean over all audits, whatever their seed.

    python benchmarks/seeds.py [--audits N] [--out FILE]  (200 audits a row: seven minutes; benchmarks/seeds.tsv)

An audit is that of interval_coverage.py, with membership of halves. With `between`, the leak of every audit is multiplied by
a random factor, as the public start of a seed does; groups of audits are the seeds of one. `within` takes only what varies
between the targets of the seeds, `student` only Student's t over the seeds' means, and `ours` is `mean_over_seeds`.
"""

import argparse
import math
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from interval_coverage import LEAKS, audited
from mia_audit.report.findings import Estimate, estimate, estimate_over, mean_over_seeds

LEVEL, GROUPS = 0.95, 4000
SEEDS, MODELS, BETWEEN = (2, 3, 5), (9, 17), (0.0, 0.2, 0.5)
"""Seeds and models of an audit, and standard deviations of the logarithm of the factor of its leak."""
FIRST = 1000
"""Seed of the first simulated audit: `FLOOR` was chosen on audits with smaller seeds."""
ATTACKS = (("loss-lira", "pooled"), ("rmia", "none"))
"""The second minus the first, on the same targets, is the difference."""


def estimates(models: int, leak: float, between: float, audits: int) -> dict[str, list[Estimate]]:
    """Return AUC, TPR and the difference of two attacks' AUCs with their intervals over targets, for independent audits."""
    random = np.random.default_rng(FIRST)
    found: dict[str, list[Estimate]] = {"auc": [], "tpr_at_fpr_0.1": [], "difference": []}
    for seed in range(FIRST, FIRST + audits):
        factor = math.exp(between * random.normal())
        (auc, tpr), (other, _) = audited("halves", models, factor * leak, seed, ATTACKS)
        for name, one in zip(found, (auc, tpr, other.minus(auc)), strict=True):
            found[name].append(estimate_over(one, LEVEL))
    return found


def coverage(audits: list[Estimate], seeds: int) -> tuple[list[float], float]:
    """Return the coverages in percent of the intervals within seeds, of Student's t and ours, and our mean half-width."""
    random = np.random.default_rng(seeds)
    truth = np.mean([one.mean for one in audits])
    covered, widths = np.zeros(3), []
    for _ in range(GROUPS):
        group = [audits[place] for place in random.choice(len(audits), seeds, replace=False)]
        means = [one.mean for one in group]
        within = math.sqrt(sum(((one.high - one.low) / 2) ** 2 for one in group)) / seeds
        student, ours = estimate(means, LEVEL), mean_over_seeds(group, LEVEL)
        widths.append(ours.above)
        covered += [abs(student.mean - truth) <= half for half in (within, student.above, ours.above)]
    return [100 * float(share) for share in covered / GROUPS], float(np.mean(widths))


def main() -> None:
    """Write a row per leak, variation between seeds, number of models and of seeds, and metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".tsv"))
    options = parser.parse_args()
    lines = ["leak\tbetween\tmodels\tseeds\tmetric\twithin\tstudent\tours\thalf_width"]
    for leak, between, models in product(("no", "yes"), BETWEEN, MODELS):
        if leak == "no" and between:
            continue  # a factor of no leak is none
        for metric, audits in estimates(models, LEAKS[leak], between, options.audits).items():
            for seeds in SEEDS:
                shares, width = coverage(audits, seeds)
                numbers = "\t".join(f"{share:.1f}" for share in shares)
                lines.append(f"{leak}\t{between:g}\t{models}\t{seeds}\t{metric}\t{numbers}\t{width:.4f}")
                print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
