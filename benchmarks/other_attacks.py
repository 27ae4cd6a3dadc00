"""Compare attacks on a model's outputs by other authors with ours, on the same targets and shadow models.

    python benchmarks/other_attacks.py [published=FOLDER] > benchmarks/other_attacks.tsv

Every model of 33 is a target once, with 4, 8 or 32 others (`attacks.subsets`). Two data sets are made here: 33 small
networks of scikit-learn, each fitted to half of the records of digits or of breast_cancer, a tenth of whose labels are
replaced. FOLDER is the authors' folder attack_data of Huang et al. 2024. A row has the means over targets of AUC and
TPR at 0.1 % and 1 % FPR, by data set. BaVarIA-t (Brännvall 2026) is implemented here as its abstract describes it: the
prior of each record's normal-inverse-gamma distribution has the pooled mean or the record's, and of 18 priors the best
by AUC is stated, which favours it. Half a minute of one core without the published scores, four with them.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import gammaln
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from mia_audit.attacks import attacks
from mia_audit.attacks.design import scored_with
from mia_audit.attacks.io.layouts import read_per_model_csv
from mia_audit.evaluation.metrics import auc, tpr_at_fpr
from mia_audit.signals.name import Reading, read_signal

MODELS, OTHERS = 33, (4, 8, 32)
METRICS = ("auc", "tpr_0_1", "tpr_1")
PRIORS = tuple(product((0.1, 1, 4), (1, 3, 10), (False, True)))
"""Numbers of observations κ that the prior's mean counts for, shapes α of its variance, and whether the mean is the record's."""
OURS = {
    "threshold": ("threshold", "loss", "none"),
    "BASE": ("base", "loss", "none"),
    "RMIA": ("rmia", "loss", "none"),
    "LiRA": ("loss-lira", "confidence", "per-record"),
    "LiRA, pooled variance": ("loss-lira", "confidence", "pooled"),
    "shrunk": ("loss-lira", "confidence", "shrunk"),
    "hierarchical": ("loss-lira", "confidence", "hierarchical"),
    "types": ("loss-lira", "confidence", "types"),
    "blend": ("loss-lira", "confidence", "blend"),
}
"""Attacks of this package by the names of their authors or ours, with their signals and likelihoods."""


def fitted(records: np.ndarray, labels: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Fit networks to random halves of the records, and return their confidences and the membership, [N, K]."""
    random = np.random.default_rng(0)
    classes = labels.max() + 1
    labels = np.where(random.random(len(labels)) < noise, random.integers(classes, size=len(labels)), labels)
    records = StandardScaler().fit_transform(records)
    member = np.zeros((len(records), MODELS), dtype=bool)
    confidence = np.empty(member.shape)
    for model in range(MODELS):
        member[random.permutation(len(records))[: len(records) // 2], model] = True
        here = member[:, model]
        network = MLPClassifier(64, batch_size=32, max_iter=60, tol=0, n_iter_no_change=60, random_state=model)
        network.fit(records[here], labels[here])
        hidden = np.maximum(records @ network.coefs_[0] + network.intercepts_[0], 0)
        logits = hidden @ network.coefs_[1] + network.intercepts_[1]
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        own = np.take_along_axis(logits, labels[:, None], axis=1)
        others = np.where(np.arange(classes) == labels[:, None], -np.inf, logits)
        confidence[:, model] = own[:, 0] - np.logaddexp.reduce(others, axis=1)
    return confidence, member


def bavaria(signal: np.ndarray, member: np.ndarray, prior: tuple[float, float, bool]) -> np.ndarray:
    """Score by the log ratio of the two Student-t predictive densities of every record, from all models but the target."""
    kappa, alpha, own = prior
    signal = signal - signal.mean(axis=1, keepdims=True)
    number = signal.shape[1] - 1
    centre = (signal.sum(axis=1, keepdims=True) - signal) / number
    ratio = np.zeros(signal.shape)
    for sign, side in ((1, member), (-1, ~member)):
        count = side.sum(axis=1, keepdims=True) - side
        total = (signal * side).sum(axis=1, keepdims=True) - signal * side
        square = (signal**2 * side).sum(axis=1, keepdims=True) - signal**2 * side
        mean = total / np.maximum(count, 1)
        within = np.maximum(square - count * mean**2, 0)
        variance = within.sum(axis=0) / np.maximum(count - 1, 0).sum(axis=0)
        pooled = total.sum(axis=0) / count.sum(axis=0)
        first = centre - centre.mean(axis=0) + pooled if own else np.broadcast_to(pooled, signal.shape)
        mean = np.where(count > 0, mean, first)
        strength, shape = kappa + count, alpha + count / 2
        around = (kappa * first + count * mean) / strength
        rate = alpha * variance + within / 2 + kappa * count * (mean - first) ** 2 / (2 * strength)
        scale = rate * (strength + 1) / (shape * strength)
        log = gammaln(shape + 0.5) - gammaln(shape) - 0.5 * np.log(2 * shape * scale)
        ratio += sign * (log - (shape + 0.5) * np.log1p((signal - around) ** 2 / (2 * shape * scale)))
    return ratio


def measured(scores: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Return the means over targets of AUC and TPR at 0.1 % and 1 % FPR."""
    pairs = list(zip(scores.T, member.T, strict=True))
    return np.mean([[auc(*one), tpr_at_fpr(*one, 0.001), tpr_at_fpr(*one, 0.01)] for one in pairs], axis=0)


def ours(values: np.ndarray, member: np.ndarray, attack: tuple[str, str, str]) -> np.ndarray:
    """Score by an attack of this package."""
    method, signal, likelihood = attack
    return attacks[method].score([Reading(read_signal(signal), [np.ascontiguousarray(values)])], member, likelihood)


def compare(confidence: np.ndarray, member: np.ndarray) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield attack, number of other models and metrics."""
    signals = {"confidence": confidence, "loss": np.logaddexp(0, -confidence)}

    def of(score: Callable[..., np.ndarray], values: np.ndarray, choice: object, others: int) -> np.ndarray:
        scores = scored_with(lambda group, here: score(values[:, group], here, choice), member, others)
        return measured(scores, member)

    for others in OTHERS:
        for name, attack in OURS.items():
            yield name, others, of(ours, signals[attack[1]], attack, others)
        each = [of(bavaria, confidence, prior, others) for prior in PRIORS]
        yield "BaVarIA-t, best of 18 priors", others, max(each, key=lambda one: one[0])


def main() -> None:
    """Print the table, separated by tabs."""
    known = {
        "digits": fitted(*load_digits(return_X_y=True), 0.1),
        "breast_cancer": fitted(*load_breast_cancer(return_X_y=True), 0.1),
    }
    for given in sys.argv[1:]:
        name, _, folder = given.partition("=")
        published = read_per_model_csv(Path(folder), {})
        known[name] = published.signals["confidence"], published.member
    print("attack", "others", *(f"{name}_{metric}" for name in known for metric in METRICS), sep="\t")
    for rows in zip(*(compare(*one) for one in known.values()), strict=True):
        attack, others, _ = rows[0]
        print(attack, others, *(f"{value:.4f}" for row in rows for value in row[2]), sep="\t", flush=True)


if __name__ == "__main__":
    main()
