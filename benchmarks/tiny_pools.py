"""Compare `blend` with its parts on simulated pools of 100 and 200 records: mean AUC minus that of the hierarchical ratio.

`python benchmarks/tiny_pools.py [RUNS] > benchmarks/tiny_pools.tsv` (15 runs: two CPU minutes) writes a row per number of
records and models and share of members, over two kinds of leak: the same shift for all records, and a large one for
records with low levels alone. `weighted` is the weighted sum that larger pools get, with its standard error over pools;
`types` and `pooled` (plain LiRA) are ratios of their own, and `blend` is what an audit of such a pool prints.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np

from mia_audit.attacks.engine import type_ratio
from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.metrics import auc


def pool(records: int, models: int, share: float, hard: bool, run: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a signal and a membership, [records, models]."""
    random = np.random.default_rng([records, models, int(100 * share), hard, run])
    member = random.random((records, models)) < share
    level, sd = random.normal(3, 2, (records, 1)), random.uniform(0.6, 1.6, (records, 1))
    shift = 0.7
    if hard:
        shift, sd = np.where(level < 2, 1.5, 0.1), np.where(level < 2, 1.2, 0.3)
    signal = level + shift * member + sd * random.normal(size=member.shape)
    return np.asfortranarray(signal), np.asfortranarray(member)


def mean_auc(name: str, signal: np.ndarray, member: np.ndarray) -> float:
    """Return a likelihood's mean AUC over targets."""
    scores = RATIOS[name](signal, member)
    return float(np.nanmean([auc(*pair) for pair in zip(scores.T, member.T, strict=True)]))


def gains(signal: np.ndarray, member: np.ndarray) -> list[float]:
    """Return the AUCs of the weighted sum, types, plain LiRA and `blend` minus that of the hierarchical ratio."""
    known, type_ratio.TINY = type_ratio.TINY, 0
    weighted = mean_auc("blend", signal, member)
    type_ratio.TINY = known
    others = [mean_auc(name, signal, member) for name in ("types", "pooled", "blend")]
    return [value - mean_auc("hierarchical", signal, member) for value in (weighted, *others)]


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print("records", "models", "members", "weighted", "weighted_error", "types", "pooled", "blend", sep="\t")
    for records, models, share in product((100, 200), (9, 17), (0.2, 0.5, 0.8)):
        found = np.array([gains(*pool(records, models, share, bool(run % 2), run)) for run in range(2 * runs)])
        weighted, types, pooled, blend = found.mean(axis=0)
        error = found[:, 0].std(ddof=1) / len(found) ** 0.5
        values = (weighted, error, types, pooled, blend)
        print(records, models, share, *(f"{value:.4f}" for value in values), sep="\t", flush=True)


if __name__ == "__main__":
    main()
