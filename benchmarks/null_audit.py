"""Audits whose membership says nothing: how often the answer says that members are revealed, and how often records are listed.

`python benchmarks/null_audit.py [SEEDS] > benchmarks/null_audit.tsv` (12 CPU minutes) writes a row per seed and kind of models:
`trained` are 9 MLPs on 300 breast cancer records, a tenth of whose labels are wrong, so that they memorise; the audit
gets other random halves than they were trained on. `simulated` are 16 models whose losses and four summaries of
attributions depend on the record and the model alone, and are correlated. A row has the number of attacks among which
the strongest was chosen, its printed AUC, whether the answer says that it reveals members, and whether the page lists
exposed records; for trained models also whether the answer to the halves that they were trained on says so, as it must.
The last lines count both.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

import mia_audit
from mia_audit.models.architecture import describe
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.report.answer import answer_content
from mia_audit.report.matrix_audit import results_of
from mia_audit.report.opened import find
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, train_shadow

RECORDS, MODELS, TRAINED = 300, 16, 9
EXPLAINERS = ("ixg", "ig", "saliency", "gradient_shap")
SUMMARIES = ("loss", *(f"{name}_l1" for name in EXPLAINERS))
KINDS = ("trained", "simulated")


def halves(random: np.random.Generator, models: int) -> np.ndarray:
    """Draw the membership of models, each a random half of the records."""
    return np.stack([random.permutation(RECORDS) < RECORDS // 2 for _ in range(models)], axis=1)


def simulated(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Return signals without any trace of membership, of which some records' vary more than others'."""
    shape = (RECORDS, MODELS)
    spread = random.choice([0.4, 1.5], (RECORDS, 1))
    common, level = spread * random.normal(size=shape), random.normal(size=(RECORDS, 1))

    def one() -> np.ndarray:
        return np.exp(level + 0.7 * common + 0.7 * spread * random.normal(size=shape))

    return {name: one() for name in SUMMARIES}


def trained(random: np.random.Generator, seed: int, member: np.ndarray) -> dict[str, np.ndarray]:
    """Train a model on every half, and return the signals of all models."""
    data = load_breast_cancer()
    kept = random.permutation(len(data.data))[:RECORDS]
    values = ((data.data - data.data.mean(axis=0)) / data.data.std(axis=0))[kept].astype(np.float32)
    labels = np.where(random.random(RECORDS) < 0.1, 1 - data.target[kept], data.target[kept])
    inputs, classes = torch.from_numpy(values), torch.from_numpy(labels)
    architecture = describe("mlp", "mlp", {}, values.shape[1:], 2)
    training = Training(epochs=60, batch=32, learning_rate=1e-3)
    recipe = Recipe(architecture, None, Mechanism(mechanism="none"), training, np.inf, 64, (seed, "null audit"))
    models = [train_shadow(recipe, k, inputs, classes, inside).model for k, inside in enumerate(member.T)]
    tables = [mia_audit.signals(one, values, labels, EXPLAINERS, seed=k) for k, one in enumerate(models)]
    columns = {name: next(one for one in tables[0].columns if matches(name, one)) for name in SUMMARIES}
    return {name: np.stack([table[one].to_numpy() for table in tables], axis=1) for name, one in columns.items()}


def matches(name: str, column: str) -> bool:
    """Return whether a column has the signal of this name, of the logit where there are several quantities."""
    explainer, _, summary = name.rpartition("_")
    return column == name or (bool(explainer) and column.startswith(explainer) and column.endswith(f"_{summary}"))


def audited(member: np.ndarray, signals: dict[str, np.ndarray], seed: int) -> tuple[int, float, bool, bool]:
    """Return the number of attacks, the largest AUC, whether the answer says "reveal", and whether the page lists records."""
    audit = mia_audit.audit(member, signals, fprs=(0.01, 0.1), seed=seed)
    results = results_of(audit._request)
    findings = find(results)
    (group,) = answer_content(results, findings)["groups"]
    attacks = group["rows"][0]["attacks"].values()
    with tempfile.TemporaryDirectory() as folder:
        page = audit.report(Path(folder, "report.html")).read_text(encoding="utf-8")
    tried = sum(len(leaks) for leaks in findings.settings[0].leaks.values())
    largest = max(one["auc"]["mean"] for one in attacks)
    return tried, largest, any(one["beats_guessing"] for one in attacks), 'id="records"' in page


def main() -> None:
    """Print a row per kind of models and seed, and both counts."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("models\tseed\tattacks\tauc\treveals\tlists_records\treveals_of_trained", flush=True)
    for kind in KINDS:
        reveal = listed = 0
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            member = halves(random, TRAINED if kind == "trained" else MODELS)
            says_of_trained = ""
            if kind == "trained":
                signals = trained(random, seed, member)
                says_of_trained = f"{audited(member, signals, seed)[2]:d}"
                member = halves(random, TRAINED)
            else:
                signals = simulated(random)
            tried, largest, says, shows = audited(member, signals, seed)
            print(f"{kind}\t{seed}\t{tried}\t{largest:.4f}\t{says:d}\t{shows:d}\t{says_of_trained}", flush=True)
            reveal, listed = reveal + says, listed + shows
        print(
            f"# {kind}: {reveal} of {seeds} answers say that members are revealed; {listed} of {seeds} pages list records"
        )


if __name__ == "__main__":
    main()
