"""Coverage of the intervals over targets, simulated: how often they hold the mean over many audits of the same records.

    python benchmarks/interval_coverage.py [AUDITS]

Signals are Gaussian, members shifted by an amount that differs between records; every audit draws memberships and signals
anew. Beside the intervals of `evaluation.intervals`, Student's t over targets as if they shared nothing.
"""

import sys

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from mia_audit.attacks.run import plan, scores_of
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.leave_outs import without_each
from mia_audit.signals.name import read_signal

RECORDS, FPR = 200, 0.1
MODELS = (4, 5, 9, 17, 33)
ATTACKS = (("loss-lira", "hierarchical"), ("loss-lira", "pooled"), ("rmia", "none"), ("joint-lrt", "pooled"))


def membership(design: str, models: int, random: np.random.Generator) -> np.ndarray:
    """Draw a membership matrix [RECORDS, models]."""
    if design == "coins":
        return random.random((RECORDS, models)) < 0.5
    share = RECORDS // 2 if design == "halves" else RECORDS // 4
    return np.stack([random.permutation(RECORDS) < share for _ in range(models)], axis=1)


def audited(
    design: str, models: int, leak: float, attack: str, likelihood: str, seed: int
) -> tuple[OverTargets, OverTargets]:
    """Return AUC and TPR over the targets of one audit."""
    random = np.random.default_rng([seed, models])
    shift = leak * np.exp(0.5 * np.random.default_rng(0).normal(size=(RECORDS, 1)))
    member = membership(design, models, random)
    signal = random.normal(size=member.shape) + shift * member
    values = {
        "confidence": signal,
        "loss": np.logaddexp(0, -signal),
        "ixg_l1": np.exp(random.normal(size=member.shape)),
    }
    (run, *_) = plan([attack], [read_signal(name) for name in values], [likelihood])
    (found,) = scores_of([run], lambda one: [values[one.name]], member, member)
    without = without_each(run, found.readings, member, (FPR,))
    key = (run.attack, run.signal, run.likelihood, False)
    scored = Scored(key, np.arange(models), np.arange(RECORDS), member, found.scores.astype(np.float32))
    table = metrics_table(metric_rows(scored, (FPR,), 0.95, without))
    return OverTargets.of(table, "auc"), OverTargets.of(table, f"tpr_at_fpr_{FPR:g}")


def main(audits: int) -> None:
    """Print a row per design, number of models and leak: coverage in percent."""
    print(f"| design | leak | models | {' | '.join(f'{a} {k}: AUC, TPR, Student' for a, k in ATTACKS)} |")
    for design in ("halves", "coins", "splits"):
        for leak in (0.0, 0.6):
            for models in MODELS:
                cells = []
                for attack, likelihood in ATTACKS:
                    found = [audited(design, models, leak, attack, likelihood, seed) for seed in range(audits)]
                    held = [covered([one[place] for one in found]) for place in (0, 1)]
                    cells.append(f"{held[0][0]:.1f}, {held[1][0]:.1f}, {held[0][1]:.1f}")
                print(f"| {design} | {leak:g} | {models} | {' | '.join(cells)} |", flush=True)


def covered(found: list[OverTargets]) -> tuple[float, float]:
    """Return the coverage of our intervals and of Student's t, in percent."""
    truth = np.mean([one.mean for one in found])
    ours = [low <= truth <= high for low, high in (one.interval(0.95) for one in found)]
    plain = [abs(one.mean - truth) <= stats.t.ppf(0.975, one.count - 1) * stats.sem(one.values) for one in found]
    return 100 * float(np.mean(ours)), 100 * float(np.mean(plain))


if __name__ == "__main__":
    with threadpool_limits(1):
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
