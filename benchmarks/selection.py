"""Coverage of the strongest attack's interval, with synthetic metrics per target in place of attacks.

`python benchmarks/selection.py [RUNS] > benchmarks/selection.tsv` (500 runs: five CPU minutes) writes a row per scenario:
8 or 64 attacks, 9 or 17 targets, correlation 0 or 0.8 between attacks, and true values that are equal, spread by one
standard error, or equal but for one attack three standard errors above. `unselected_covers` is the coverage of an
attack that was fixed beforehand, and width is relative to its interval. `fixed_covers` is that of the same interval
around the chosen attack. Values do not depend on the size of the leak, so `equal` stands for no, weak and clear leaks.
In rows with `8 less 8` or `8 less 64` attacks the numbers are of the difference between the strongest of 8 and the
strongest of others, which all have equal true values, over the same targets.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
from scipy.special import stdtrit

from mia_audit.evaluation.selection import selection_errors

SD = 0.02
COLUMNS = (
    *("truth", "attacks", "targets", "correlation", "largest_bias", "bias"),
    *("unselected_covers", "fixed_covers", "covers", "width", "too_high"),
)


def truths(name: str, attacks: int, error: float) -> np.ndarray:
    """Return the attacks' true means."""
    if name == "equal":
        return np.zeros(attacks)
    if name == "one above":
        return np.append(3 * error, np.zeros(attacks - 1))
    return error * np.random.default_rng(7).normal(size=attacks)


def scenario(name: str, attacks: int, targets: int, correlation: float, runs: int) -> np.ndarray:
    """Return means over runs: bias of the largest mean and of the estimate, coverage of three intervals, width, too high."""
    random = np.random.default_rng([attacks, targets, int(10 * correlation)])
    covariance = SD**2 / targets
    truth = truths(name, attacks, np.sqrt(2 * covariance * (1 - correlation)))
    student = stdtrit(targets - 1, 0.975)
    left = min(targets, 8)
    freedom = left * (left - 1) / 2

    def noise(columns: int) -> np.ndarray:
        own, common = random.normal(size=(attacks, columns)), random.normal(size=(1, columns))
        return np.asarray(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)

    rows = []
    for _ in range(runs):
        values = truth[:, None] + SD * noise(targets) + np.sqrt(covariance) * noise(1)
        means = values.mean(axis=1)
        shared = covariance * random.chisquare(freedom, size=attacks) / freedom
        errors = np.sqrt(values.var(axis=1, ddof=1) / targets + shared)
        shift, below, above = selection_errors(means, errors, values, 0.95, draws=1000)
        best = int(np.argmax(means))
        off, error = (means[best] - truth[best]), errors[best]
        held = -above * error <= off <= below * error
        width = (below + above) * error / (2 * student * errors.mean())
        first = abs(means[0] - truth[0]) <= student * errors[0]
        fixed = abs(off) <= student * error
        rows.append((off, off - shift * error, first, fixed, held, width, off > below * error))
    return np.mean(rows, axis=0)


def difference(name: str, others: int, targets: int, correlation: float, runs: int) -> np.ndarray:
    """Return the means of `scenario` for the strongest of 8 attacks less the strongest of others."""
    random = np.random.default_rng([8, others, targets, int(10 * correlation)])
    covariance, student, left = SD**2 / targets, stdtrit(targets - 1, 0.975), min(targets, 8)
    freedom = left * (left - 1) / 2
    first = truths(name, 8, np.sqrt(2 * covariance * (1 - correlation)))
    rows = []
    for _ in range(runs):
        of_all = random.normal(size=(2, targets))
        values, moved = [], 0.0
        for sign, truth in ((1, first), (-1, np.zeros(others))):
            own = random.normal(size=(len(truth), targets)), random.normal(size=(len(truth), 1))
            noise, shared = (
                np.sqrt(correlation) * common + np.sqrt(1 - correlation) * part
                for common, part in zip((of_all[0], of_all[1, :1]), own, strict=True)
            )
            every = truth[:, None] + SD * noise + np.sqrt(covariance) * shared
            spread = covariance * random.chisquare(freedom, size=len(truth)) / freedom
            errors = np.sqrt(every.var(axis=1, ddof=1) / targets + spread)
            best = int(np.argmax(every.mean(axis=1)))
            moved += sign * selection_errors(every.mean(axis=1), errors, every, 0.95, draws=1000)[0] * errors[best]
            values.append((truth[best], every[best]))
        gap, true = values[0][1] - values[1][1], values[0][0] - values[1][0]
        shared = 2 * covariance * (1 - correlation) * random.chisquare(freedom) / freedom
        half = student * np.sqrt(gap.var(ddof=1) / targets + shared)
        off = gap.mean() - true
        rows.append((off, off - moved, np.nan, abs(off) <= half, abs(off - moved) <= half, 1.0, off - moved > half))
    return np.mean(rows, axis=0)


def main() -> None:
    """Print every scenario."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(*COLUMNS, sep="\t")
    names, sizes, correlations = ("equal", "spread", "one above"), (9, 17), (0.0, 0.8)
    for name, attacks, targets, correlation in product(names, (8, 64), sizes, correlations):
        found = scenario(name, attacks, targets, correlation, runs)
        print(name, attacks, targets, correlation, *(f"{value:.4f}" for value in found), sep="\t", flush=True)
    for name, others, targets, correlation in product(("equal", "one above"), (8, 64), sizes, correlations):
        found = difference(name, others, targets, correlation, runs)
        print(
            name, f"8 less {others}", targets, correlation, *(f"{value:.4f}" for value in found), sep="\t", flush=True
        )


if __name__ == "__main__":
    main()
