"""Compare joint ratios with 4 to 32 other models: the default, only types, and the hierarchical ratio, on the same models.

    python benchmarks/likelihoods.py NAME=SIGNALS[:RECORDS] … [--signals confidence,ixg_l1] [--null PERMUTATIONS]

SIGNALS is a signals.parquet, from an audit with 33 models or from `mia-audit import`; RECORDS is a number of its
records to draw at random. Every model is a target once, in a random group of models (`attacks.subsets`). One row per
number of other models, as in likelihoods.tsv: mean TPR at 1 % FPR and mean AUC over targets, and the
paired difference of the default minus the hierarchical ratio, with its standard error over targets. On one core, the
published scores take 6 minutes. With --null, memberships are permuted, and the rows for 4 and for all other models
state the mean AUC minus ½ and the mean TPR, with standard errors over permutations, as in likelihoods_null.tsv.
docs/results/attacks.md has both tables (make numbers).
"""

import argparse
from pathlib import Path

import numpy as np

from mia_audit.attacks.catalogue import permuted_membership
from mia_audit.attacks.design import counts, scored_with
from mia_audit.attacks.engine.joint import JOINT_RATIOS
from mia_audit.attacks.io.parquet import SignalsFile
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


def guessed(
    signals: list[np.ndarray], member: np.ndarray, others: int, permutations: int, name: str
) -> dict[str, np.ndarray]:
    """Return the mean TPR and AUC of every permutation of a membership, [permutations, 2], by likelihood."""
    found = [measured(signals, permuted_membership(member, number, name), others) for number in range(permutations)]
    return {one: np.array([each[one].mean(axis=0) for each in found]) for one in LIKELIHOODS}


def with_error(values: np.ndarray) -> str:
    """Print a mean with its standard error."""
    return f"{values.mean():.4f}\t{values.std(ddof=1) / len(values) ** 0.5:.4f}"


def main(options: argparse.Namespace) -> None:
    """Print the table, separated by tabs."""
    parts = ("auc", "auc_error", "tpr", "tpr_error") if options.null else ("tpr", "auc")
    names = [f"{likelihood}_{part}" for likelihood in LIKELIHOODS for part in parts]
    gains = () if options.null else ("tpr_gain", "tpr_gain_error", "auc_gain", "auc_gain_error")
    print("data", "signals", "others", *names, *gains, sep="\t")
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
        sizes = counts(member.shape[1])
        for others in (sizes[0], sizes[-1]) if options.null else sizes:
            if options.null:
                null = guessed(signals, member, others, options.null, name)
                cells = [with_error(null[one][:, part] - 0.5 * part) for one in LIKELIHOODS for part in (1, 0)]
            else:
                found = measured(signals, member, others)
                cells = [f"{value:.4f}" for one in LIKELIHOODS for value in found[one].mean(axis=0)]
                cells += map(with_error, (found["blend"] - found["hierarchical"]).T)
            print(name, options.signals, others, *cells, sep="\t", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("given", nargs="+")
    parser.add_argument("--signals", default="confidence,ixg_l1")
    parser.add_argument("--null", type=int, default=0)
    main(parser.parse_args())
