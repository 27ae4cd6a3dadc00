"""Coverage of the strongest attack's interval, with synthetic metrics per target in place of attacks.

`python benchmarks/selection.py [RUNS]` prints a row per scenario: 8 or 64 attacks, 9 or 17 targets, correlation 0 or 0.8
between attacks, and true values that are equal, spread by one standard error, or equal but for one attack three
standard errors above. Width is relative to the interval of an attack fixed beforehand. Values do not depend on the size
of the leak, so `equal` stands for no, weak and clear leaks.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.special import stdtrit

from mia_audit.evaluation.selection import selection_errors

SD = 0.02


def truths(name: str, attacks: int, error: float) -> np.ndarray:
    """Return the attacks' true means."""
    if name == "equal":
        return np.zeros(attacks)
    if name == "one above":
        return np.append(3 * error, np.zeros(attacks - 1))
    return error * np.random.default_rng(7).normal(size=attacks)


def scenario(name: str, attacks: int, targets: int, correlation: float, runs: int) -> np.ndarray:
    """Return means over runs: error of the largest mean and of the estimate, coverage of both intervals, width, too high."""
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
        rows.append((off, off - shift * error, abs(off) <= student * error, held, width, off > below * error))
    return np.mean(rows, axis=0)


def main() -> None:
    """Print every scenario."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("truth,attacks,targets,correlation,largest_bias,bias,fixed_covers,covers,width,too_high")
    for name in ("equal", "spread", "one above"):
        for attacks in (8, 64):
            for targets in (9, 17):
                for correlation in (0.0, 0.8):
                    found = scenario(name, attacks, targets, correlation, runs)
                    numbers = ",".join(f"{value:.4f}" for value in found)
                    print(f"{name},{attacks},{targets},{correlation},{numbers}", flush=True)


if __name__ == "__main__":
    main()
