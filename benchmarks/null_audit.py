"""Audits of models that reveal nothing: how often the answer says otherwise, and how often a record is called exposed.

`python benchmarks/null_audit.py [SEEDS]` audits 16 made-up models of 300 records a seed, whose membership is shuffled
before they are "trained": losses and four summaries of attributions depend on the record and the model alone, and are
correlated. A row per seed has the number of attacks among which the strongest was chosen, its printed AUC, and whether
the answer says that it reveals members; then whether the page lists exposed records. The last line counts both.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import mia_audit
from mia_audit.report.data.results import find
from mia_audit.report.matrix_audit import results_of
from mia_audit.report.terminal import answer_content

RECORDS, MODELS = 300, 16


def signals(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Return signals without any trace of membership, of which some records' vary more than others'."""
    shape = (RECORDS, MODELS)
    spread = random.choice([0.4, 1.5], (RECORDS, 1))
    common, level = spread * random.normal(size=shape), random.normal(size=(RECORDS, 1))

    def one() -> np.ndarray:
        return np.exp(level + 0.7 * common + 0.7 * spread * random.normal(size=shape))

    return {"loss": one(), **{f"{name}_l1": one() for name in ("ixg", "ig", "saliency", "gradient_shap")}}


def main() -> None:
    """Print a row per seed, and both counts."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    reveal = listed = 0
    print("seed\tattacks\tauc\treveals\tlists_records", flush=True)
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        member = np.stack([random.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS)], axis=1)
        audit = mia_audit.audit(member, signals(random), fprs=(0.01, 0.1), seed=seed)
        results = results_of(audit._request)
        findings = find(results)
        (group,) = answer_content(results, findings)["groups"]
        attacks = group["rows"][0]["attacks"].values()
        says = any(one["beats_guessing"] for one in attacks)
        with tempfile.TemporaryDirectory() as folder:
            page = audit.report(Path(folder, "report.html")).read_text(encoding="utf-8")
        shows = 'id="records"' in page
        tried = sum(len(leaks) for leaks in findings.settings[0].leaks.values())
        largest = max(one["auc"]["mean"] for one in attacks)
        print(f"{seed}\t{tried}\t{largest:.4f}\t{says:d}\t{shows:d}", flush=True)
        reveal, listed = reveal + says, listed + shows
    print(f"{reveal} of {seeds} answers say that members are revealed; {listed} of {seeds} pages list exposed records")


if __name__ == "__main__":
    main()
