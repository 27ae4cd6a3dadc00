"""Compare our numbers with those of other tools, with the reasons for differences; writes docs/results/agreement.md.

    python benchmarks/agreement.py             (writes the page; seconds)
    python benchmarks/agreement.py --check     (exit code 1 where the page is not what it would write)

The other tools' numbers were computed by their code, at the commits named here, on the data of `data`; ours are
computed in this run, which needs no code of theirs.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mia_audit.attacks.catalogue import attacks
from mia_audit.evaluation.epsilon_bounds import (
    clopper_pearson_epsilon,
    one_run_epsilon,
    one_run_f_dp_epsilon,
    one_run_gaussian_epsilon,
)
from mia_audit.evaluation.metrics import auc, tpr_at_fpr
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.signals.name import Reading, read_signal

PAGE = Path(__file__).parents[1] / "docs" / "results" / "agreement.md"
RECORDS, MODELS = 400, 10

SOURCES = {
    "jax_privacy": "google-deepmind/jax_privacy 8967688, `jax_privacy/auditing.py`",
    "TensorFlow Privacy": "tensorflow/privacy 03035d5, `advanced_mia.py` and `epsilon_lower_bound.py`",
    "Carlini et al.": "tensorflow/privacy 03035d5, `research/mi_lira_2021/plot.py`",
    "Privacy Meter": "privacytrustlab/ml_privacy_meter e384af8, `modules/mia/attacks/rmia.py`",
    "PrivacyGuard": "facebookresearch/PrivacyGuard fb9c26c, `attacks/rmia_attack.py`",
    "LeakPro": "aidotse/LeakPro c47752fa, formulas of `mia_attacks/lira.py` and `rmia.py`",
    "dp-accounting": "dp-accounting 0.6, `pld.PLDAccountant`",
}


class Data(NamedTuple):
    """Confidences of ten models in complementary pairs, [N, K], the first of which is the target."""

    member: np.ndarray
    confidence: np.ndarray

    @property
    def others(self) -> np.ndarray:
        """The shadow models of every attack: all except the target and its complement."""
        return np.arange(2, MODELS)


def data() -> Data:
    """Draw the data."""
    random = np.random.default_rng(20)
    first = np.stack([random.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS // 2)], axis=1)
    member = np.stack([first, ~first], axis=2).reshape(RECORDS, MODELS)
    mean, width = random.normal(size=(RECORDS, 1)), np.exp(0.3 * random.normal(size=(RECORDS, 1)))
    confidence = mean + width * random.normal(size=member.shape) + 0.8 * member
    return Data(member, confidence)


def score(attack: str, likelihood: str = "none") -> np.ndarray:
    """Return our scores for the target."""
    drawn = data()
    values = {"confidence": drawn.confidence, "loss": np.logaddexp(0, -drawn.confidence)}
    name = "confidence" if attack.startswith("loss-lira") else "loss"
    reading = [Reading(read_signal(name), [values[name]])]
    scores: np.ndarray = attacks[attack].score(reading, drawn.member, likelihood)[:, 0]
    return scores


def area(attack: str, likelihood: str = "none") -> Callable[[], float]:
    """Return the AUC of our scores."""
    return lambda: auc(score(attack, likelihood), data().member[:, 0])


def tpr(attack: str, likelihood: str, fpr: float) -> Callable[[], float]:
    """Return the TPR of our scores at an FPR."""
    return lambda: tpr_at_fpr(score(attack, likelihood), data().member[:, 0], fpr)


class Case(NamedTuple):
    """A number that another tool computes too; `why` is empty if both must agree to 10⁻⁶."""

    peer: str
    what: str
    theirs: float
    ours: Callable[[], float]
    why: str = ""


OF_POPULATION = (
    "theirs compares a record with 250 records that no model was trained on, which ties some records; ours compares it with the "
    "target's non-members, and has the ROC curve of the ratio itself"
)
TOP = (
    "of a population's out models theirs keeps the largest four (as many as a record has), so p̄(z) is too large and shares "
    "are; ours takes the mean over the models that p̄(x) has, as the paper does"
)
GRID = "both round privacy losses up, on grids of their own"

CASES = [
    Case("TensorFlow Privacy", "LiRA, variance per record, mean: AUC", 0.5925, area("loss-lira", "per-record")),
    Case("TensorFlow Privacy", "the same: TPR at 10 % FPR", 0.17, tpr("loss-lira", "per-record", 0.1)),
    Case(
        "TensorFlow Privacy",
        "LiRA offline, variance per record, mean: AUC",
        0.558325,
        area("loss-lira-offline-two-sided", "per-record"),
    ),
    Case(
        "TensorFlow Privacy",
        "LiRA, variance per record, median (its default): AUC",
        0.601675,
        area("loss-lira", "per-record"),
        "the paper's Gaussian has the mean; theirs is an estimate of the same that outliers move less",
    ),
    Case("TensorFlow Privacy", "LiRA, fixed variance, mean: AUC", 0.678125, area("loss-lira", "pooled")),
    Case("LeakPro", "LiRA online, variance per record: AUC", 0.5925, area("loss-lira", "per-record")),
    Case("LeakPro", "LiRA offline, log cdf: AUC", 0.730575, area("loss-lira-offline", "per-record")),
    Case(
        "Carlini et al.",
        "LiRA online, variance per record: AUC",
        0.601675,
        area("loss-lira", "per-record"),
        "medians instead of means; besides, every record is cut to the fewest models that any record has",
    ),
    Case(
        "Carlini et al.",
        "LiRA online, fixed variance: AUC",
        0.6886,
        area("loss-lira", "pooled"),
        "their fixed deviation is that of all values of all records together, not around each record's mean, "
        "and the out models' is taken from the in models; the paper's text has what ours does",
    ),
    Case("PrivacyGuard", "RMIA online: AUC", 0.7264375, area("rmia"), OF_POPULATION),
    Case("LeakPro", "RMIA online, γ = 1: AUC", 0.7264375, area("rmia"), OF_POPULATION),
    Case(
        "LeakPro",
        "RMIA online, γ = 2 (its default): AUC",
        0.72685,
        area("rmia"),
        "a larger γ makes ties among the most exposed; γ = 1 has the ROC curve of the ratio itself",
    ),
    Case(
        "LeakPro",
        "RMIA offline, a = 0.33, γ = 1: AUC",
        0.7224625,
        area("rmia-offline"),
        OF_POPULATION,
    ),
    Case(
        "Privacy Meter",
        "RMIA offline, a = 0.33: AUC",
        0.722425,
        area("rmia-offline"),
        TOP,
    ),
    Case(
        "PrivacyGuard",
        "RMIA offline, a = 0.33: AUC",
        0.722425,
        area("rmia-offline"),
        TOP,
    ),
    Case(
        "jax_privacy",
        "AUC of a signal",
        0.7063375,
        lambda: auc(data().confidence[:, 0], data().member[:, 0]),
        "theirs may draw between two thresholds: the area under the convex hull of the curve, which is never below ½ "
        "and for noise above it; ours is the chance that a member ranks above a non-member",
    ),
    Case(
        "jax_privacy",
        "TPR at 10 % FPR of a signal",
        0.298684211,
        lambda: tpr_at_fpr(data().confidence[:, 0], data().member[:, 0], 0.1),
        "theirs may draw between two thresholds, which lies on the convex hull of the curve; ours is a threshold that exists",
    ),
    Case(
        "jax_privacy",
        "one-run ε, 600 of 1,000 right, δ = 10⁻⁵",
        0.297226958,
        lambda: one_run_epsilon(1000, 1000, 600, 0.05, 1e-5),
    ),
    Case(
        "jax_privacy",
        "one-run ε, 900 of 1,000 right",
        2.020645594,
        lambda: one_run_epsilon(1000, 1000, 900, 0.05, 1e-5),
    ),
    Case(
        "jax_privacy",
        "one-run ε, 90 of 100 right, of 1,000",
        1.626143679,
        lambda: one_run_epsilon(1000, 100, 90, 0.05, 1e-5),
    ),
    Case(
        "jax_privacy",
        "one-run f-DP (Gaussian) ε, 600 of 1,000",
        0.583540368,
        lambda: one_run_gaussian_epsilon(1000, 1000, 600, 0.05, 1e-5),
    ),
    Case(
        "jax_privacy",
        "one-run f-DP (Gaussian) ε, 900 of 1,000",
        3.779338579,
        lambda: one_run_gaussian_epsilon(1000, 1000, 900, 0.05, 1e-5),
    ),
    Case(
        "jax_privacy",
        "one-run f-DP (Gaussian) ε, 90 of 100, of 1,000",
        2.456405067,
        lambda: one_run_gaussian_epsilon(1000, 100, 90, 0.05, 1e-5),
    ),
    Case(
        "jax_privacy",
        "one-run f-DP ε without a Gaussian mechanism, 90 of 100, of 1,000",
        2.456405067,
        lambda: one_run_f_dp_epsilon(1000, 100, 90, 0.05, 1e-5),
        "theirs is for Gaussian mechanisms only; ours takes the curve of (ε, δ)-DP itself, and holds for all",
    ),
    Case(
        "jax_privacy",
        "Clopper–Pearson ε at a threshold, 30 and 11 of 200, δ = 10⁻⁵",
        0.072717263,
        lambda: clopper_pearson_epsilon(30, 11, 200, 200, 0.05, 1e-5),
    ),
    Case(
        "TensorFlow Privacy",
        "Clopper–Pearson ε at a threshold, 120 and 10 of 200",
        1.769994703,
        lambda: clopper_pearson_epsilon(120, 10, 200, 200, 0.05),
    ),
    Case(
        "dp-accounting",
        "ε of σ = 1.3, q = 1/120, 2,400 steps, δ = 10⁻⁵",
        1.473572786,
        lambda: epsilon_spent(1.3, 1 / 120, 2400, 1e-5, "pld"),
        GRID,
    ),
    Case(
        "dp-accounting",
        "ε of σ = 30.9, q = 0.1, 100 steps, δ = 10⁻⁵",
        0.099985279,
        lambda: epsilon_spent(30.9, 0.1, 100, 1e-5, "pld"),
        GRID,
    ),
]


def page() -> str:
    """Return the page."""
    rows, wrong = [], []
    for case in CASES:
        ours = case.ours()
        gap = ours - case.theirs
        if not case.why and abs(gap) > 1e-6 * max(1, abs(case.theirs)):
            wrong.append(f"{case.peer}, {case.what}: {case.theirs} and {ours}")
        shown = "none" if abs(gap) <= 1e-6 * max(1, abs(case.theirs)) else f"{gap:+.2g}"
        rows.append(
            f"| {case.peer} | {case.what} | {case.theirs:.6f} | {ours:.6f} | {shown} | {case.why or 'the same definition'} |"
        )
    if wrong:
        sys.exit("\n".join(wrong))
    sources = "\n".join(f"- {peer}: {source}." for peer, source in SOURCES.items())
    return f"""# Agreement with other tools

Generated by `benchmarks/agreement.py`, which says how the data are drawn; a test keeps this page in step.
Theirs are numbers of their own code (LeakPro's: of its formulas) on the same data, ours those of this version.
AUC and TPR are of one target among {MODELS} models in complementary pairs, {RECORDS} records;
everybody attacks it with the other {MODELS - 2}.
Where the definition is the same, numbers agree to 10⁻⁶; where they differ, the last column says why.

| tool | number | theirs | ours | difference | why |
|---|---|---|---|---|---|
{chr(10).join(rows)}

What was run:

{sources}
"""


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if parser.parse_args().check:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
