"""Measure how training in bf16 changes accuracies and attacks, paired over the same training sets.

    snakemake --cores all --configfile config/precision.yaml          (20 minutes on one core without bf16 units)
    python benchmarks/training_precision.py results/precision

Every setting is compared with the same setting in float32, model by model: model k of both was trained on the same
records, from the same public start, with other random draws. The difference between two trainings in float32 (`-again`)
is due to chance alone. Intervals are 95 % over models (Student-t).
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import t as student

from mia_audit.storage import read_frame

ATTACKS = (
    ("loss-lira", "confidence"),
    ("l1-lrt", "ixg_l1"),
    ("l1-lrt", "ixg_probability_l1"),
    ("l1-lrt", "ig_l1"),
    ("l1-lrt", "ig_probability_l1"),
)
METRICS = ("auc", "tpr_at_fpr_0.01", "tpr_at_fpr_0.1")


def interval(values: np.ndarray) -> str:
    """Write a mean and its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.4f} ± {half:.4f}"


def per_model(setting: Path) -> dict[str, np.ndarray]:
    """Return accuracies and, by attack, metrics of every model of a setting."""
    training = read_frame(setting / "training.parquet", "training").drop_nulls("test_accuracy").sort("shadow")
    found = {name: training[name].to_numpy() for name in ("train_accuracy", "test_accuracy", "test_loss")}
    metrics = read_frame(setting / "metrics.parquet", "metrics")
    metrics = metrics.filter(~pl.col("null_control"), pl.col("likelihood") == "hierarchical").sort("target")
    for attack, signal in ATTACKS:
        rows = metrics.filter(pl.col("attack") == attack, pl.col("signal") == signal)
        found |= {f"{signal} {metric}": rows[metric].to_numpy() for metric in METRICS}
    return found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of the audit's results")
    results = parser.parse_args().results
    for name, epsilon in (("none", "inf"), ("dp-sgd", "8")):
        first, again, coarse = (
            per_model(results / "digits" / "vit" / f"{name}{end}-eps{epsilon}") for end in ("", "-again", "-bf16")
        )
        print(f"\n{name}, ε = {epsilon}\n{'':36} {'float32':>9} {'again − float32':>19} {'bf16 − float32':>19}")
        for key, values in first.items():
            print(
                f"{key:36} {values.mean():9.4f} {interval(again[key] - values):>19} {interval(coarse[key] - values):>19}"
            )


if __name__ == "__main__":
    main()
