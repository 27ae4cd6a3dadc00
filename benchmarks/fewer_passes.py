"""Measure how fewer passes or lower precision change attacks on explanations, paired over the same targets.

    snakemake --cores all --configfile config/digits.yaml --until train membership
    python benchmarks/fewer_passes.py results/digits/digits/vit/none-epsinf        (ten minutes on one core)
    python benchmarks/fewer_passes.py SETTING --nodes 25 --precision bf16          (minutes)

Integrated gradients are recomputed on a setting's trained models with fewer or adaptive Gauss–Legendre nodes, and every
explainer in another precision. The likelihood ratio on the logarithm of the L1 norms runs on each, with every model as the
target once. The first line of a block is the reference; differences have 95 % intervals over the targets, which account
for the models that targets share.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.attacks.catalogue import permuted_membership, plan
from mia_audit.evaluation.files import metrics_table
from mia_audit.evaluation.run import score_and_evaluate
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import load, read_architecture
from mia_audit.models.inputs import Inputs
from mia_audit.models.weights import WEIGHTS
from mia_audit.pools.store import read_membership, read_records
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.name import Signal, read_signal
from mia_audit.training.stored import shadow_folders
from mia_audit.training.task import Records
from paired import paired

QUANTITIES = ("logit", "probability")
FPRS = (0.01, 0.1)
METRICS = ("auc", *(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS))


@dataclass
class Matrices:
    """Signals in memory with the interface that attacks read."""

    values: dict[str, np.ndarray]
    member: np.ndarray

    def __post_init__(self) -> None:
        self.signals = [read_signal(name) for name in self.values]
        self.record = np.arange(len(self.member), dtype=np.int32)
        self.models = self.member.shape[1]
        self.persons = None

    def read(self, signal: Signal) -> list[np.ndarray]:
        return [self.values[signal.name]]


def attacked(values: dict[str, np.ndarray], member: np.ndarray) -> dict[str, pl.DataFrame]:
    """Return, by signal, the metrics of the headline attack on it, a row per target."""
    matrices = Matrices(values, member)
    runs = plan(["loss-lira", "l1-lrt"], matrices.signals, ["hierarchical"])
    null = permuted_membership(member, 0, "benchmark")
    rows = [row for judged in score_and_evaluate(runs, matrices, null, FPRS, 0.95) for row in judged.rows]
    metrics = metrics_table(rows).filter(~pl.col("null_control"))
    return {signal: metrics.filter(pl.col("signal") == signal) for signal in values}


def trained(setting: Path) -> tuple[list[TorchModel], Any, np.ndarray]:
    """Return a setting's models in order, its records and the membership matrix."""
    pool = setting.parents[2] / "pools" / setting.parents[1].name
    architecture = read_architecture(setting.parent / "architecture.json")
    records, member = read_records(pool), read_membership(pool / "membership.parquet")
    inputs = Inputs(records.data, records.metadata, architecture["input_shape"])
    folders = shadow_folders(setting / "models", range(member.shape[1]))
    modules = [load(architecture, path / WEIGHTS) for path in folders.values()]
    return [TorchModel(module, batch=128, prepare=lambda _: inputs) for module in modules], records, member


def difference(second: pl.DataFrame, first: pl.DataFrame, metric: str) -> str:
    """Write the mean difference of a metric over the same targets, and its 95 % interval."""
    gap = paired(second, first, metric)
    return f"{gap.mean:+.4f} ± {gap.interval(0.95)[1] - gap.mean:.4f}"


def main() -> None:
    """Compute, attack and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", type=Path, help="folder of a setting, as training left it")
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[25, 16, 10, 8, 5, 4], help="the first is the reference"
    )
    parser.add_argument("--completeness", type=float, nargs="*", default=[0.05, 0.01], help="shares of adaptive nodes")
    parser.add_argument("--precision", nargs="*", default=[], help="precisions to compare with float32: bf16, tf32")
    options = parser.parse_args()
    models, records, member = trained(options.setting)

    def signals(family: str, choices: dict[str, Any]) -> tuple[dict[str, np.ndarray], float]:
        """Return every signal as [N, K], and the processor seconds per model."""
        task = SignalsTask(family, {"explain": list(QUANTITIES), "explained_class": "predicted"} | choices, 0)
        start = time.process_time()
        found = [model_signals(model, Records.from_stored(records), task) for model in models]
        spent = (time.process_time() - start) / len(models)
        return {name: np.stack([one[name] for one in found], axis=1).astype(np.float64) for name in found[0]}, spent

    def compare(title: str, family: str, variants: dict[str, dict[str, Any]], stems: Sequence[str]) -> None:
        print(
            f"\n{title}\n{'variant':12} {'signal':22} {'s/model':>8} {'AUC':>7} {'ΔAUC':>17} {'ΔTPR@1%':>17} {'ΔTPR@10%':>17}"
            f" {'completeness':>13} {'Δlog L1':>9}"
        )
        reference: dict[str, Any] = {}
        for variant, choices in variants.items():
            values, spent = signals(family, choices)
            chosen = {
                name: values[name] for name in (*(f"{stem}_l1" for stem in stems), "confidence") if name in values
            }
            found = attacked(chosen, member)
            reference = reference or {"found": found, "values": chosen}
            for name, scores in found.items():
                first = reference["found"][name]
                differences = [difference(scores, first, metric) for metric in METRICS]
                error = values.get(f"{name.removesuffix('l1')}completeness")
                moved = np.abs(np.log(chosen[name] / reference["values"][name])) if name.endswith("l1") else None
                print(
                    f"{variant:12} {name:22} {spent:8.2f} {scores['auc'].mean():7.4f} {' '.join(f'{d:>17}' for d in differences)}"
                    f" {'' if error is None else f'{np.median(error):13.2g}'} {'' if moved is None else f'{np.median(moved):9.2g}'}",
                    flush=True,
                )

    stems = ["ig", "ig_probability"]
    nodes = {f"{count} nodes": {"explainers": ["ig"], "ig_nodes": count} for count in options.nodes}
    nodes |= {
        f"adaptive {share:g}": {"explainers": ["ig"], "ig_nodes": {"completeness": share}}
        for share in options.completeness
    }
    if len(nodes) > 1:
        compare("integrated gradients", "ig", nodes, stems)
    for precision in options.precision:
        same = {"explainers": ["ixg", "saliency"]}
        compare(
            f"{precision}: one pass",
            "gradient",
            {"float32": same, precision: same | {"precision": precision}},
            ["ixg", "ixg_probability", "saliency", "saliency_probability"],
        )
        same = {"explainers": ["ig"], "ig_nodes": options.nodes[0]}
        compare(f"{precision}: ig", "ig", {"float32": same, precision: same | {"precision": precision}}, stems)


if __name__ == "__main__":
    main()
