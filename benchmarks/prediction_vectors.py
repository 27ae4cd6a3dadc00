"""Attack prediction vectors with one shadow model, as the FADP paper does, beside the confidence of the true class.

    snakemake --cores all --configfile config/fadp/digits.yaml --until train membership
    python benchmarks/prediction_vectors.py results/fadp_digits/seed-*    (half a minute each)

The paper's Algorithm 1: a classifier learns from the prediction vectors of one shadow model, the sorted softmax, who was
trained on, and is asked about the target's. Every model is the target once, and the next one its shadow model. The
classifier is a network with a hidden layer of 64, as the paper names none. Beside it are the same with the confidence
alone and with both, and the confidence as it is. A row per setting and attack: the mean AUC over seeds with its 95 %
interval; of one seed, over its targets.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from mia_audit.evaluation.metrics import auc
from mia_audit.learners.protocol import Compute, open_learner
from mia_audit.pools.store import read_membership, read_records
from mia_audit.report.findings import Estimate, estimate, mean_over_seeds
from mia_audit.training.stored import shadow_folders
from mia_audit.training.task import Records

MECHANISMS = ("none", "fadp")
CONFIDENCE = 0.95


def features(logits: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the classifiers read, by name: log probabilities in descending order, the confidence, and both."""
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    others = np.where(np.arange(logits.shape[1]) == labels[:, None], -np.inf, logits)
    confidence = own - np.logaddexp.reduce(others, axis=1, keepdims=True)
    vector = -np.sort(-logs, axis=1)
    return {"sorted softmax": vector, "confidence": confidence, "both": np.concatenate([vector, confidence], axis=1)}


def attacked(models: list[dict[str, np.ndarray]], member: np.ndarray) -> dict[str, np.ndarray]:
    """Return the AUC of every target, by attack."""
    found: dict[str, list[float]] = {}
    for target, read in enumerate(models):
        shadow = (target + 1) % len(models)
        for name, values in read.items():
            scale = StandardScaler().fit(models[shadow][name])
            network = MLPClassifier(64, alpha=1e-2, max_iter=200, random_state=target)
            network.fit(scale.transform(models[shadow][name]), member[:, shadow])
            score = network.predict_proba(scale.transform(values))[:, 1]
            found.setdefault(f"one shadow model, {name}", []).append(auc(score, member[:, target]))
        found.setdefault("confidence, no shadow model", []).append(auc(read["confidence"][:, 0], member[:, target]))
    return {name: np.array(values) for name, values in found.items()}


def found(results: Path) -> Iterator[tuple[str, str, Estimate]]:
    """Yield setting, attack and mean AUC of one seed's results."""
    (pool,) = (results / "pools").iterdir()
    stored = read_records(pool)
    member, labels = read_membership(pool / "membership.parquet"), np.asarray(stored.labels)
    for setting in sorted(path.parent for path in results.glob("*/*/*/models")):
        if setting.name.split("-eps")[0] not in MECHANISMS:
            continue
        _, learner = open_learner(setting.parent / "architecture.json", Compute("cpu", 1))
        folders = shadow_folders(setting / "models", range(member.shape[1])).values()
        logits = [learner.load(folder).logits(Records.from_stored(stored)).astype(np.float64) for folder in folders]
        for name, values in attacked([features(one, labels) for one in logits], member).items():
            yield setting.name.replace("-eps", ", ε = ").replace("inf", "∞"), name, estimate(values, CONFIDENCE)


def main() -> None:
    """Print the table, separated by tabs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="folders of the results, one per seed")
    by_row: dict[tuple[str, str], list[Estimate]] = {}
    for results in parser.parse_args().results:
        for setting, attack, mean in found(results):
            by_row.setdefault((setting, attack), []).append(mean)
    print("setting", "attack", "seeds", "auc_mean", "auc_low", "auc_high", sep="\t")
    for row, means in by_row.items():
        over = mean_over_seeds(means, CONFIDENCE)
        print(*row, len(means), *(f"{value:.4f}" for value in (over.mean, over.low, over.high)), sep="\t")


if __name__ == "__main__":
    main()
