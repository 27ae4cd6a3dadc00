"""Joint ratios with 4 to 32 other models: the default, types alone and the hierarchical ratio, on the same models.

    python benchmarks/likelihoods.py NAME=SIGNALS[:RECORDS] … [--signals confidence,ixg_l1]

SIGNALS is a signals.parquet, of an audit with 33 models or of `mia-audit import`; RECORDS takes so many records of it at
random. Every model is a target once, in a random group of models (`attacks.subsets`). One row per number of other models:
mean TPR at 1 % FPR and mean AUC over targets, and the paired difference of the default less the hierarchical ratio, with
its standard error over targets; all as the table of docs/attacks.md. On one core, the published scores take 6 minutes.
"""

import argparse
from pathlib import Path

import numpy as np

from mia_audit.attacks.engine.joint import JOINT_RATIOS
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.attacks.subsets import counts, scored_with
from mia_audit.evaluation.metrics import auc, tpr_at_fpr
from mia_audit.signals.name import Reading

LIKELIHOODS = ("hierarchical", "types", "blend")
SEED = 7


def measured(signals: list[np.ndarray], member: np.ndarray, others: int) -> dict[str, np.ndarray]:
    """Return TPR at 1 % FPR and AUC of every target, [K, 2], by likelihood."""
    found = {}
    for name in LIKELIHOODS:
        scores = scored_with(
            lambda group, here, name=name: JOINT_RATIOS[name]([one[:, group] for one in signals], here, None),
            member,
            others,
        )
        pairs = list(zip(scores.T, member.T, strict=True))
        found[name] = np.array([[tpr_at_fpr(one, here, 0.01), auc(one, here)] for one, here in pairs])
    return found


def gap(values: np.ndarray) -> str:
    """Print a mean with its standard error."""
    return f"{values.mean():+.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"


def main(options: argparse.Namespace) -> None:
    """Print the table."""
    print(
        "| signals | others | hierarchical | types | blend | blend − hierarchical, TPR | AUC |",
        "|---" * 7 + "|",
        sep="\n",
    )
    for given in options.given:
        name, _, path = given.partition("=")
        path, _, some = path.partition(":")
        file = SignalsFile(Path(path))
        known = {signal.name: signal for signal in file.signals}
        signals = [Reading(known[one], file.read(known[one])).scaled for one in options.signals.split(",")]
        member = file.member
        if some:
            chosen = np.random.default_rng(SEED).permutation(len(member))[: int(some)]
            signals, member = [one[chosen] for one in signals], member[chosen]
        for others in counts(member.shape[1]):
            found = measured(signals, member, others)
            cells = [" ".join(f"{value:.4f}" for value in found[one].mean(axis=0)) for one in LIKELIHOODS]
            difference = found["blend"] - found["hierarchical"]
            print(f"| {name} | {others} |", *(f"{cell} |" for cell in [*cells, *map(gap, difference.T)]), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", nargs="+")
    parser.add_argument("--signals", default="confidence,ixg_l1")
    main(parser.parse_args())
