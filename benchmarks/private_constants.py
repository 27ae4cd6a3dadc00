"""Measure the quality of columns' constants that are computed privately, over ε: breast cancer, 30 columns of 569 records.

    python benchmarks/private_constants.py

Bounds are 0 and the next of 1, 2, 5 × 10ⁿ above a column's largest value. They are good bounds because they are read
from the records, which is done for this measurement only. Prints the errors of means and scales, the number of scales
at their floor, and five-fold accuracies.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from mia_audit.privacy.moments import Bounds, release

DELTA, DRAWS = 1e-5, 20
STEPS = np.array([1.0, 2.0, 5.0, 10.0])


def above(largest: float) -> float:
    """Return the next of 1, 2, 5 × 10ⁿ."""
    steps = STEPS * 10.0 ** np.floor(np.log10(largest))
    return float(steps[steps >= largest][0])


def accuracy(records: np.ndarray, labels: np.ndarray) -> float:
    """Return the five-fold accuracy of a logistic regression."""
    return float(cross_val_score(LogisticRegression(max_iter=5000), records, labels, cv=5).mean())


def main() -> None:
    """Measure every budget over some draws of the noise."""
    records, labels = load_breast_cancer(return_X_y=True)
    mean, sd = records.mean(axis=0), records.std(axis=0)
    bounds = Bounds(np.zeros(len(mean)), np.array([above(value) for value in records.max(axis=0)]))
    print("ε     noise   mean off by (sd)   scale/sd (median)   at floor   accuracy")
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        drawn = [release([records], len(records), bounds, epsilon, DELTA, (seed,)) for seed in range(DRAWS)]
        off = np.mean([np.abs(one.mean - mean) / sd for one in drawn])
        ratio = np.median([one.sd / sd for one in drawn])
        floored = np.mean([one.floored.sum() for one in drawn])
        reached = np.mean([accuracy((records - one.mean) / one.sd, labels) for one in drawn])
        print(f"{epsilon:<5g} {drawn[0].noise:6.2%} {off:14.2f} {ratio:19.2f} {floored:14.1f} {reached:12.3f}")
    print(f"exact constants: {accuracy((records - mean) / sd, labels):.3f}")


if __name__ == "__main__":
    main()
