"""Check that attacks on pure noise have AUC ½: the mean AUC of every attack under every membership design.

    python benchmarks/null_grid.py [--only ATTACK] [MATRICES [MODELS …]]        (200 matrices, 4 to 64 models: two hours)

Matrices of 400 records are pure noise, and membership is drawn by the design. A cell is the mean over matrices of the
mean AUC over targets, minus 1/2, in thousandths, with its standard error, as in null_grid.tsv. The last line names the cells that are
farther from 1/2 than 0.005, or than four standard errors.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import attacks, plan
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.signals.name import Reading, read_signal

RECORDS, NUMBERS = 400, 4
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
    ("vector-lrt", "hierarchical"),
    ("vector-lrt", "blend"),
    ("vector-classifier", "none"),
)


def membership(design: str, records: int, models: int, random: np.random.Generator) -> np.ndarray:
    """Draw a membership matrix [records, models]; models under `splits` train on a quarter of the records each."""
    if design == "coins":
        return random.random((records, models)) < 0.5
    if design == "balanced":  # Carlini's num_experiments: every record in half of the models
        order = np.argsort(random.random((records, models)), axis=1)
        return order < models // 2
    if design == "pairs":
        first = np.stack([random.permutation(records) < records // 2 for _ in range(-(-models // 2))], axis=1)
        return np.stack([first, ~first], axis=2).reshape(records, -1)[:, :models]
    share = records // 2 if design == "halves" else records // 4
    return np.stack([random.permutation(records) < share for _ in range(models)], axis=1)


def mean_aucs(design: str, models: int, seed: int, asked: Sequence[tuple[str, str]]) -> list[float]:
    """Return every attack's mean AUC over the targets of one matrix of noise; NaN if it scores no member of some target."""
    random = np.random.default_rng([seed, models, DESIGNS.index(design)])
    member = membership(design, RECORDS, models, random)
    confidence, norm = random.normal(size=(2, RECORDS, models))
    values = {"confidence": confidence, "loss": np.logaddexp(0, -confidence), "ixg_l1": np.exp(norm)}
    values["ixg_vector"] = random.normal(size=(RECORDS, models, NUMBERS)).astype(np.float16)
    readings = {name: Reading(read_signal(name), [matrix]) for name, matrix in values.items()}
    found = []
    for attack, likelihood in asked:
        (run,) = plan([attack], [one.signal for one in readings.values()], [likelihood])[:1]
        scores = attacks[attack].score([readings[one.name] for one in run.signals], member, likelihood)
        found.append(float(metrics_of_columns(scores.astype(np.float32), member, ())["auc"].mean()))
    return found


def main(matrices: int, sizes: Sequence[int], only: str | None) -> None:
    """Print a row per design, number of models and attack."""
    asked = [one for one in ATTACKS if only in (None, one[0])]
    print("design", "models", "matrices", "attack", "likelihood", "auc_thousandths", "error", sep="\t")
    far = []
    for models in sizes:
        for design in DESIGNS:
            aucs = np.array([mean_aucs(design, models, seed, asked) for seed in range(matrices)]) - 0.5
            means, errors = aucs.mean(axis=0), aucs.std(axis=0, ddof=1) / np.sqrt(matrices)
            for attack, mean, error in zip(asked, means, errors, strict=True):
                if not np.isnan(mean):
                    cells = *attack, f"{1000 * mean:.1f}", f"{1000 * error:.1f}"
                    print(design, models, matrices, *cells, sep="\t", flush=True)
            far += [
                f"{design} {models} {' '.join(attack)}"
                for attack, mean, error in zip(asked, means, errors, strict=True)
                if abs(mean) > min(0.005, 4 * error)
            ]
    print(f"# farther than .005 or four standard errors: {'; '.join(far) or 'none'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("matrices", type=int, nargs="?", default=200)
    parser.add_argument("models", type=int, nargs="*")
    with threadpool_limits(1):
        given = parser.parse_args()
        main(given.matrices, given.models or MODELS, given.only)
