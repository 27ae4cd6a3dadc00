"""Bounds on ε from 1,000 canaries of one training on digits: without privacy, and by Opacus' DP-SGD at ε = 8.

    python benchmarks/canaries.py [SEEDS]       (1 seed: three minutes of one core)

A network of 128 hidden units learns the digits from which no canary is made, and the canaries with coin 1. The adversary sees
the model's outputs on all canaries, or every step of the training, or only its first and last parameters.
"""

import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mia_audit.canaries.draw import bounds, confidence, make, read_asked, read_coins, scored
from mia_audit.canaries.observe import observe_canaries
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import read_records

CANARIES, EPSILON, DELTA = 1000, 8.0, 1e-5
KINDS = (("mislabelled",), ("noise",))
PLANS = {"none": {"epochs": 100, "batch": 100, "rate": 0.1}, "dp-sgd": {"epochs": 20, "batch": 200, "rate": 0.5}}
METHODS = {"one-run": "Steinke", "one-run-f-dp": "f-DP", "one-run-gaussian": "Gaussian f-DP"}


def inputs(records: np.ndarray) -> torch.Tensor:
    """Return images as rows of numbers between 0 and 1."""
    return torch.as_tensor(np.asarray(records, dtype=np.float32)).flatten(1) / 255


def trained(folder: Path, private: bool, seed: int) -> dict[str, np.ndarray]:
    """Train once, and return the scores of canaries by the adversary's view."""
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    plan = PLANS["dp-sgd" if private else "none"]
    stored = read_records(folder / "train")
    data = torch.utils.data.TensorDataset(inputs(stored.data), torch.as_tensor(stored.labels.astype(np.int64)))
    loader = torch.utils.data.DataLoader(data, batch_size=int(plan["batch"]), shuffle=True)
    model: nn.Module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        model.parameters(), lr=plan["rate"], momentum=0.0 if private else 0.9
    )
    if private:
        terms = {"target_epsilon": EPSILON, "target_delta": DELTA, "epochs": int(plan["epochs"]), "max_grad_norm": 1.0}
        model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
            module=model, optimizer=optimizer, data_loader=loader, **terms
        )
    observers = {
        "every step": observe_canaries(folder, model, cross_entropy, inputs),
        "first and last model": observe_canaries(folder, model, cross_entropy, inputs, every_step=False),
    }
    for observer in observers.values():
        observer.attach(optimizer)
    for _ in range(int(plan["epochs"])):
        for records, labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(records), labels).backward()
            optimizer.step()
    asked = read_asked(folder)
    with torch.no_grad():
        logits = getattr(model, "_module", model)(inputs(asked.data)).numpy()
    found = {"outputs": confidence(logits, asked.labels, "")}
    return found | {name: observer.scores() for name, observer in observers.items()}


def main(seeds: Sequence[int]) -> None:
    """Print a row per training, kind of canaries and view: mean bounds over seeds."""
    warnings.simplefilter("ignore")
    section = Dataset(source="digits")
    pool = build_pool(pools["digits"].load(section, "digits"), section, "digits", 0)
    print(
        f"| training | canaries | what is seen | {' | '.join(METHODS.values())} |\n|---|---|---|{'---|' * len(METHODS)}"
    )
    for private in (True, False):
        for kinds in KINDS:
            found: dict[str, list[dict[str, float]]] = {}
            for seed in seeds:
                with tempfile.TemporaryDirectory() as scratch:
                    folder = Path(scratch, "canaries")
                    make(
                        np.asarray(pool.audited.data), pool.audited.labels, pool.metadata, kinds, CANARIES, folder, seed
                    )
                    coins = read_coins(folder)
                    for view, scores in trained(folder, private, seed).items():
                        known = bounds(scored(scores, coins), DELTA, 0.95, gaussian=True)
                        found.setdefault(view, []).append(dict(zip(known["method"], known["epsilon"], strict=True)))
            for view, listed in found.items():
                cells = [f"{np.mean([one[method] for one in listed]):.2f}" for method in METHODS]
                name = f"DP-SGD, ε = {EPSILON:g}" if private else "without privacy"
                print(f"| {name} | {', '.join(kinds)} | {view} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(range(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
