"""Measure how training in bf16 changes accuracies and attacks, paired over the same training sets.

    snakemake --cores all --configfile config/precision.yaml          (20 minutes on one core without bf16 units)
    python benchmarks/training_precision.py results/precision

Every setting is compared with the same setting in float32, model by model: model k of both was trained on the same
records, from the same public start, with other random draws. The difference between two trainings in float32 (`-again`)
is due to chance alone. Intervals are 95 %: of accuracies and losses over models (Student-t), of metrics of attacks over
targets, accounting for the models that targets share.
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import t as student

from mia_audit.evaluation.intervals import OverTargets
from mia_audit.storage import read_frame

ATTACKS = (
    ("loss-lira", "confidence"),
    ("l1-lrt", "ixg_l1"),
    ("l1-lrt", "ixg_probability_l1"),
    ("l1-lrt", "ig_l1"),
    ("l1-lrt", "ig_probability_l1"),
)
METRICS = ("auc", "tpr_at_fpr_0.01", "tpr_at_fpr_0.1")


Gap = tuple[float, float]
"""A mean difference and half the width of its 95 % interval."""


def over_models(values: np.ndarray) -> Gap:
    """Return the mean of differences over models, with Student's t interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def over_targets(gap: OverTargets) -> Gap:
    """Return the mean of differences over targets that share models."""
    return gap.mean, gap.interval(0.95)[1] - gap.mean


def printed(gap: Gap) -> str:
    """Write a mean difference and its interval."""
    return f"{gap[0]:+.4f} ± {gap[1]:.4f}"


def trained(setting: Path) -> dict[str, np.ndarray]:
    """Return accuracies and losses of every model of a setting."""
    training = read_frame(setting / "training.parquet", "training").drop_nulls("test_accuracy").sort("shadow")
    return {name: training[name].to_numpy() for name in ("train_accuracy", "test_accuracy", "test_loss")}


def attacked(setting: Path) -> dict[tuple[str, str], OverTargets]:
    """Return, by signal and metric, the metrics of the attacks on a setting."""
    metrics = read_frame(setting / "metrics.parquet", "metrics")
    metrics = metrics.filter(~pl.col("null_control"), pl.col("likelihood") == "hierarchical")
    found = {}
    for attack, signal in ATTACKS:
        rows = metrics.filter(pl.col("attack") == attack, pl.col("signal") == signal)
        found |= {(signal, metric): OverTargets.from_metrics(rows, metric) for metric in METRICS}
    return found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of the audit's results")
    results = parser.parse_args().results
    all_gaps: list[tuple[bool, list[Gap]]] = []
    for name, epsilon in (("none", "inf"), ("dp-sgd", "8")):
        settings = [results / "digits" / "vit" / f"{name}{end}-eps{epsilon}" for end in ("", "-again", "-bf16")]
        print(f"\n{name}, ε = {epsilon}\n{'':36} {'float32':>9} {'again − float32':>19} {'bf16 − float32':>19}")
        first, *others = (trained(setting) for setting in settings)
        rows = [(key, one.mean(), False, [over_models(two[key] - one) for two in others]) for key, one in first.items()]
        attacks, *others = (attacked(setting) for setting in settings)
        for (signal, metric), over in attacks.items():
            gaps = [over_targets(two[signal, metric].minus(over)) for two in others]
            rows.append((f"{signal} {metric}", over.mean, metric == "auc", gaps))
        for key, mean, is_auc, gaps in rows:
            print(f"{key:36} {mean:9.4f} {' '.join(f'{printed(gap):>19}' for gap in gaps)}")
            all_gaps.append((is_auc, gaps))
    print()
    for place, name in enumerate(("again", "bf16")):
        outside = sum(abs(gaps[place][0]) > gaps[place][1] for _, gaps in all_gaps)
        changes = [gaps[place][0] for is_auc, gaps in all_gaps if is_auc]
        print(
            f"{name}: {outside} of {len(all_gaps)} intervals exclude 0;"
            f" root mean square of {len(changes)} differences in AUC: {np.sqrt(np.mean(np.square(changes))):.4f}"
        )


if __name__ == "__main__":
    main()
