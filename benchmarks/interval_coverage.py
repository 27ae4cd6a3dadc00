"""Simulate the coverage of intervals over targets: how often they contain the mean over many audits of the same records.

    python benchmarks/interval_coverage.py [--audits N] [--designs …] [--leaks …] [--models …] [--blend]  (300 audits: a quarter of an hour)

Signals are Gaussian, with a shift of members that differs between records; every audit draws new memberships and signals. The
intervals of `evaluation.intervals` are compared with Student's t over targets, which assumes independent targets.
"""

import argparse
from itertools import product

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import attacks, plan
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.evaluation.intervals import OverTargets, without_each
from mia_audit.signals.name import Reading, read_signal

RECORDS, FPR = 200, 0.1
MODELS = (4, 9, 17, 33)
DESIGNS = ("halves", "coins", "splits")
LEAKS = {"no": 0.0, "weak": 0.15, "yes": 0.6}
"""The median of the shifts of members, in standard deviations of the signal."""

ATTACKS = (("loss-lira", "hierarchical"), ("loss-lira", "pooled"), ("rmia", "none"), ("joint-lrt", "pooled"))
BLENDED = (("loss-lira", "blend"), ("joint-lrt", "blend"))


def membership(design: str, models: int, random: np.random.Generator) -> np.ndarray:
    """Draw a membership matrix [RECORDS, models]."""
    if design == "coins":
        return random.random((RECORDS, models)) < 0.5
    share = RECORDS // 2 if design == "halves" else RECORDS // 4
    return np.stack([random.permutation(RECORDS) < share for _ in range(models)], axis=1)


def audited(
    design: str, models: int, leak: float, seed: int, tried: tuple[tuple[str, str], ...]
) -> list[tuple[OverTargets, OverTargets]]:
    """Return AUC and TPR over the targets of one audit, for every attack that is tried."""
    random = np.random.default_rng([seed, models])
    shift = leak * np.exp(0.5 * np.random.default_rng(0).normal(size=(RECORDS, 1)))
    member = membership(design, models, random)
    signal = random.normal(size=member.shape) + shift * member
    values = {
        "confidence": signal,
        "loss": np.logaddexp(0, -signal),
        "ixg_l1": np.exp(random.normal(size=member.shape)),
    }
    readings = {name: Reading(read_signal(name), [matrix]) for name, matrix in values.items()}
    judged = []
    for attack, likelihood in tried:
        run = plan([attack], [one.signal for one in readings.values()], [likelihood])[0]
        read = [readings[signal.name] for signal in run.signals]
        scores = attacks[attack].score(read, member, likelihood).astype(np.float32)
        key = (run.attack, run.signal, run.likelihood, False)
        scored = Scored(key, np.arange(models), np.arange(RECORDS), member, scores)
        table = metrics_table(metric_rows(scored, (FPR,), 0.95, without_each(run, read, member, scores, (FPR,))))
        judged.append((OverTargets.from_metrics(table, "auc"), OverTargets.from_metrics(table, f"tpr_at_fpr_{FPR:g}")))
    return judged


def main() -> None:
    """Print a row per design, leak and number of models: coverage in percent of AUC, TPR, and Student's t for the AUC."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=300)
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS)
    parser.add_argument("--leaks", nargs="+", choices=LEAKS, default=list(LEAKS))
    parser.add_argument("--models", nargs="+", type=int, default=MODELS)
    parser.add_argument("--blend", action="store_true", help="the default likelihood instead (a second per audit)")
    options = parser.parse_args()
    tried = BLENDED if options.blend else ATTACKS
    names = [f"`{attack}`, {likelihood}" if likelihood != "none" else f"`{attack}`" for attack, likelihood in tried]
    print(f"| design | leak | models | {' | '.join(names)} |\n|---|---|---|{'---|' * len(names)}")
    for design, leak, models in product(options.designs, options.leaks, options.models):
        audits = [audited(design, models, LEAKS[leak], seed, tried) for seed in range(options.audits)]
        cells = []
        for place in range(len(tried)):
            (ours, student), (rate, _) = (covered([one[place][metric] for one in audits]) for metric in (0, 1))
            cells.append(f"{ours:.0f} / {rate:.0f} / {student:.0f}")
        print(f"| {design} | {leak} | {models} | {' | '.join(cells)} |", flush=True)


def covered(audits: list[OverTargets]) -> tuple[float, float]:
    """Return the coverage of our intervals and of Student's t, in percent."""
    truth = np.mean([one.mean for one in audits])
    ours = [low <= truth <= high for low, high in (one.interval(0.95) for one in audits)]
    plain = [abs(one.mean - truth) <= stats.t.ppf(0.975, one.count - 1) * stats.sem(one.values) for one in audits]
    return 100 * float(np.mean(ours)), 100 * float(np.mean(plain))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
