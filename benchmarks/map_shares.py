"""Measure how unevenly locally linear maps are mixed, with intervals over restarts.

    snakemake --cores all --configfile config/harder2020/shares.yaml --until train
    python benchmarks/map_shares.py results/harder2020_shares     (seconds)

The share of the top map is the largest share of any map for the predicted class, averaged over the first 2,000 records of
the pool, as figures/filters/*/shares.csv has it for a setting's first model. A row per setting: the mean test accuracy and
the mean share, with 95 % t intervals over models.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t as student

from mia_audit.models.architecture import load, read_architecture
from mia_audit.models.inputs import taken_by, to_input
from mia_audit.models.weights import WEIGHTS
from mia_audit.pools.store import read_records
from mia_audit.report.figures.explanations import column
from mia_audit.storage import read_frame
from mia_audit.training.stored import shadow_folders

RECORDS = 2000


def interval(values: np.ndarray) -> str:
    """Write a mean and its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.4f} ({values.mean() - half:.4f} to {values.mean() + half:.4f})"


def main() -> None:
    """Print a row per setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder of the audit's results")
    results = parser.parse_args().results
    torch.set_num_threads(1)
    for table in sorted(results.glob("*/*/*/training.parquet")):
        setting = table.parent
        architecture = read_architecture(setting.parent / "architecture.json")
        pool = read_records(results / "pools" / setting.parents[1].name)
        sample = to_input(pool.data[:RECORDS], taken_by(architecture, pool.metadata), architecture["input_shape"])
        training = read_frame(table, "training").drop_nulls("test_accuracy")
        folders = shadow_folders(setting / "models", range(len(training))).values()
        found = [column("", load(architecture, path / WEIGHTS), sample[:1], sample, 1) for path in folders]
        shares = np.array([one.top_share for one in found])
        print(
            f"{setting.relative_to(results)}: test accuracy {interval(training['test_accuracy'].to_numpy())},"
            f" top share {interval(shares)}, even {1 / found[0].maps:.4f}"
        )


if __name__ == "__main__":
    main()
