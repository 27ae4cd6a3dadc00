"""Measure whether an explainer's own noise protects, and whether repeated requests undo it, paired over the same targets.

    snakemake --cores all --configfile config/digits.yaml --until train membership
    python benchmarks/randomness.py results/digits/digits/vit/none-epsinf [--out FILE]     (ten minutes on one core)

Stochastic explainers are computed on a setting's trained models with every setting of `explainers.randomness`; the
likelihood ratio on the logarithm of their L1 norms (logit) is run on each. A row per explainer and setting: AUC and TPR
at 1 % FPR with 95 % intervals over targets, and the difference of the AUC from `own`.
"""

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from fewer_passes import Matrices, trained
from mia_audit.attacks.catalogue import permuted_membership, plan
from mia_audit.evaluation.files import metrics_table
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.run import score_and_evaluate
from mia_audit.learners import Records
from mia_audit.signals.compute import Task, model_signals
from paired import paired

EXPLAINERS = {
    "gradient_shap": {"gradient_shap_samples": 3, "gradient_shap_sd": 0.001},
    "smoothgrad": {"smoothgrad_samples": 5, "smoothgrad_noise": 0.15},
}
"""Stochastic explainers and their options; GradientSHAP's are those of config/digits.yaml."""

SETTINGS = ("own", "shared", "averaged:8")


def measured(setting: Path) -> pl.DataFrame:
    """Return the table."""
    models, records, member = trained(setting)
    null = permuted_membership(member, 0, "benchmark")
    rows = []
    for explainer, chosen in EXPLAINERS.items():
        own: pl.DataFrame | None = None
        for randomness in SETTINGS:
            options = {"explain": ["logit"], "explained_class": "predicted", "explainers": [explainer]}
            options |= {"randomness": randomness} | chosen
            found = [
                model_signals(model, Records.from_stored(records), Task(explainer, options, 0, model=number))
                for number, model in enumerate(models)
            ]
            name = f"{explainer}_l1"
            source = Matrices({name: np.stack([one[name] for one in found], axis=1).astype(np.float64)}, member)
            runs = plan(["l1-lrt"], source.signals, ["hierarchical"])[:1]
            (judged,) = score_and_evaluate(runs, source, null, (0.01,), 0.95)
            metrics = metrics_table(judged.rows)
            row = {"explainer": explainer, **chosen, "randomness": randomness, "targets": len(metrics)}
            own = metrics if own is None else own
            shown = {
                "auc": OverTargets.from_metrics(metrics, "auc"),
                "tpr_at_fpr_0.01": OverTargets.from_metrics(metrics, "tpr_at_fpr_0.01"),
            }
            for column, over in {**shown, "auc_less_own": paired(metrics, own, "auc")}.items():
                low, high = over.interval(0.95)
                row |= {column: over.mean, f"{column}_low": low, f"{column}_high": high}
            rows.append(row)
            print(
                {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True
            )
    return pl.DataFrame(rows)


def main() -> None:
    """Print the rows, and write them with --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", type=Path, help="folder of a setting, as training left it")
    parser.add_argument("--out", type=Path, help="a CSV file")
    options = parser.parse_args()
    table = measured(options.setting)
    if options.out:
        table.write_csv(options.out)


if __name__ == "__main__":
    main()
