"""Measure how storing weights in bfloat16 changes accuracies and attacks, paired over the same models.

    snakemake --cores all --configfile config/digits.yaml --until train membership
    python benchmarks/rounded_weights.py results/digits/digits/vit/none-epsinf [SETTING ...]    (minutes a setting)

Every model of a setting is queried and explained as it was trained, and again with its weights rounded as by
`compute.weights: bf16`, which does not change training. The likelihood ratio runs on the signals of both, with every
model as the target once; differences have 95 % intervals over targets, which account for the models that targets share
(accuracy: over models, Student-t). Bytes are those of all files of weights.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from fewer_passes import METRICS, QUANTITIES, attacked, difference, trained
from mia_audit.learners import Records
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models import save_weights
from mia_audit.models.weights import round_weights
from mia_audit.pools.store import StoredRecords
from mia_audit.signals.compute import Task, model_signals
from training_precision import over_models, printed

STEMS = ("ixg", "saliency", "ig")
NODES = 5


def signals_of(models: list[TorchModel], records: StoredRecords) -> dict[str, np.ndarray]:
    """Return every signal as [N, K]."""
    asked = {"explain": list(QUANTITIES), "explained_class": "predicted"}
    gradient = Task("gradient", asked | {"explainers": ["ixg", "saliency"]}, 0)
    ig = Task("ig", asked | {"explainers": ["ig"], "ig_nodes": NODES}, 0)
    rows = [
        {
            name: values
            for task in (gradient, ig)
            for name, values in model_signals(one, Records.from_stored(records), task).items()
        }
        for one in models
    ]
    return {name: np.stack([one[name] for one in rows], axis=1) for name in rows[0]}


def stored_bytes(models: list[TorchModel], rounded: bool) -> int:
    """Return the bytes of the models' files."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "weights")
        total = 0
        for one in models:
            save_weights(one.module, path, rounded)
            total += path.stat().st_size
    return total


def main() -> None:
    """Query, round, query again, attack and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=Path, nargs="+", help="folders of settings, as training left them")
    for setting in parser.parse_args().settings:
        models, records, member = trained(setting)
        sizes, signals = [stored_bytes(models, rounded=False)], [signals_of(models, records)]
        for one in models:
            round_weights(one.module)
        sizes.append(stored_bytes(models, rounded=True))
        signals.append(signals_of(models, records))
        print(f"\n{setting.name}: {sizes[0]:,} bytes, rounded {sizes[1]:,} ({sizes[1] / sizes[0]:.2f})")
        hits = [one["predicted"] == records.labels[:, None] for one in signals]
        accuracy = [np.array([one[~inside, k].mean() for k, inside in enumerate(member.T)]) for one in hits]
        changed = (signals[0]["predicted"] != signals[1]["predicted"]).mean()
        print(
            f"test accuracy {accuracy[0].mean():.4f}, rounded {printed(over_models(accuracy[1] - accuracy[0]))}; {changed:.2%} of predictions differ"
        )
        names = ["confidence", *(f"{stem}{end}_l1" for stem in STEMS for end in ("", "_probability"))]
        metrics = [attacked({name: one[name].astype(np.float64) for name in names}, member) for one in signals]
        print(f"{'signal':22} {'AUC':>7} {'ΔAUC':>17} {'ΔTPR@1%':>17} {'ΔTPR@10%':>17} {'Δlog':>9}")
        for name in names:
            first, second = (one[name] for one in metrics)
            moved = (
                np.abs(signals[1][name] - signals[0][name])
                if name == "confidence"
                else np.abs(np.log(signals[1][name] / signals[0][name]))
            )
            differences = " ".join(f"{difference(second, first, metric):>17}" for metric in METRICS)
            print(f"{name:22} {first['auc'].mean():7.4f} {differences} {np.median(moved):9.2g}", flush=True)


if __name__ == "__main__":
    main()
