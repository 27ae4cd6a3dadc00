"""Check that attacks on pure noise have AUC ½: the mean AUC of every attack under every membership design.

    python benchmarks/null_grid.py [MATRICES [MODELS …]]        (200 matrices, 4 to 64 models: two hours)

Matrices of 400 records are pure noise, and membership is drawn by the design. A cell is the mean over matrices of the
mean AUC over targets, minus 1/2, in thousandths, with its standard error. The last line names the cells that are
farther from 1/2 than 0.005, or than four standard errors.
"""

import sys

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import attacks
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.signals.name import Reading, read_signal

RECORDS = 400
MODELS = (4, 8, 16, 64)
DESIGNS = ("halves", "coins", "splits", "balanced", "pairs")
ATTACKS = (
    ("loss-lira", "hierarchical"),
    ("loss-lira", "pooled"),
    ("loss-lira", "per-record"),
    ("loss-lira", "shrunk"),
    ("loss-lira-offline", "pooled"),
    ("rmia", "none"),
    ("rmia-offline", "none"),
    ("base", "none"),
    ("joint-lrt", "hierarchical"),
    ("joint-lrt", "pooled"),
    ("loss-lira", "types"),
    ("loss-lira", "blend"),
    ("joint-lrt", "blend"),
    ("shadow-classifier", "none"),
)


def membership(design: str, records: int, models: int, random: np.random.Generator) -> np.ndarray:
    """Draw a membership matrix [records, models]; models under `splits` train on a quarter of the records each."""
    if design == "coins":
        return random.random((records, models)) < 0.5
    if design == "balanced":  # Carlini's num_experiments: every record in half of the models
        order = np.argsort(random.random((records, models)), axis=1)
        return order < models // 2
    if design == "pairs":
        first = np.stack([random.permutation(records) < records // 2 for _ in range(models // 2)], axis=1)
        return np.stack([first, ~first], axis=2).reshape(records, models)
    share = records // 2 if design == "halves" else records // 4
    return np.stack([random.permutation(records) < share for _ in range(models)], axis=1)


def mean_aucs(design: str, models: int, seed: int) -> list[float]:
    """Return every attack's mean AUC over the targets of one matrix of noise; NaN if it scores no member of some target."""
    random = np.random.default_rng([seed, models, DESIGNS.index(design)])
    member = membership(design, RECORDS, models, random)
    confidence, norm = random.normal(size=(2, RECORDS, models))
    values = {"confidence": confidence, "loss": np.logaddexp(0, -confidence), "ixg_l1": np.exp(norm)}
    readings = {name: Reading(read_signal(name), [matrix]) for name, matrix in values.items()}
    found = []
    for attack, likelihood in ATTACKS:
        (names,) = attacks[attack].reads([one.signal for one in readings.values()])
        scores = attacks[attack].score([readings[one.name] for one in names], member, likelihood)
        found.append(float(metrics_of_columns(scores.astype(np.float32), member, ())["auc"].mean()))
    return found


def main(matrices: int, sizes: tuple[int, ...]) -> None:
    """Print a row per design and number of models."""
    print(f"| design | models | {' | '.join(f'`{a}` {k}' if k != 'none' else f'`{a}`' for a, k in ATTACKS)} |")
    print(f"|---|---|{'---|' * len(ATTACKS)}")
    far = []
    for models in sizes:
        for design in DESIGNS:
            aucs = np.array([mean_aucs(design, models, seed) for seed in range(matrices)]) - 0.5
            means, errors = aucs.mean(axis=0), aucs.std(axis=0, ddof=1) / np.sqrt(matrices)
            cells = [
                "" if np.isnan(mean) else f"{1000 * mean:+.1f} ± {1000 * error:.1f}"
                for mean, error in zip(means, errors, strict=True)
            ]
            print(f"| {design} | {models} | {' | '.join(cells)} |", flush=True)
            far += [
                f"{design} {models} {' '.join(attack)}"
                for attack, mean, error in zip(ATTACKS, means, errors, strict=True)
                if abs(mean) > min(0.005, 4 * error)
            ]
    print(f"\nfarther than .005 or four standard errors: {'; '.join(far) or 'none'}")


if __name__ == "__main__":
    with threadpool_limits(1):
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, tuple(map(int, sys.argv[2:])) or MODELS)
