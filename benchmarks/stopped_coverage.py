"""Simulate the coverage of the interval at which a ladder stops: how often it contains the mean over many audits of that rung.

    python benchmarks/stopped_coverage.py [AUDITS]       (300 audits: two minutes)

Signals are Gaussian, with a shift of members that differs between records; every audit draws new memberships and
signals, evaluates 5, 9, 17 and 33 of its models, and stops at the first look whose interval is narrow enough. The rule
of `evaluation.stopping` is compared with the usual 95 % interval at the same looks.
"""

import sys

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.run import plan
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.evaluation.leave_outs import without_each
from mia_audit.evaluation.stopping import Look, look, rungs
from mia_audit.signals.name import Reading, read_signal

RECORDS, LEVEL = 200, 0.95
RUNGS = tuple(rungs("auto", 33))
ASKED = (0.05, 0.03, 0.02)


def table(signal: np.ndarray, member: np.ndarray) -> pl.DataFrame:
    """Return the metrics of the likelihood ratio with pooled variances on these models."""
    reading = Reading(read_signal("confidence"), [signal])
    run = plan(["loss-lira"], [reading.signal], ["pooled"])[0]
    scores = attacks["loss-lira"].score([reading], member, "pooled").astype(np.float32)
    models = member.shape[1]
    scored = Scored(
        (run.attack, run.signal, run.likelihood, False), np.arange(models), np.arange(RECORDS), member, scores
    )
    return metrics_table(metric_rows(scored, (0.1,), LEVEL, without_each(run, [reading], member, (0.1,))))


def looks(leak: float, seed: int, counts: tuple[int, ...] = RUNGS) -> list[tuple[Look, Look]]:
    """Return the looks of one audit: by the rule, and at the usual level."""
    random = np.random.default_rng([seed, 1])
    shift = leak * np.exp(0.5 * np.random.default_rng(0).normal(size=(RECORDS, 1)))
    member = np.stack([random.permutation(RECORDS) < RECORDS // 2 for _ in range(counts[-1])], axis=1)
    signal = random.normal(size=member.shape) + shift * member
    tables = [table(np.asfortranarray(signal[:, :count]), np.asfortranarray(member[:, :count])) for count in counts]
    return [(look(one, ["auc"], LEVEL, len(counts))[0], look(one, ["auc"], LEVEL, 1)[0]) for one in tables]


def stopped(found: list[list[Look]], asked: float) -> tuple[float, float, float]:
    """Return coverage, the mean half width and the mean number of models of audits that stop at a half width."""
    truth = np.mean([[one.mean for one in audit] for audit in found], axis=0)
    held, half, models = [], [], []
    for audit in found:
        place = next((at for at, one in enumerate(audit) if one.narrow(asked)), len(audit) - 1)
        held.append(audit[place].low <= truth[place] <= audit[place].high)
        half.append(audit[place].half)
        models.append(audit[place].models)
    return float(np.mean(held)), float(np.mean(half)), float(np.mean(models))


def main(audits: int) -> None:
    """Print a row per leak and requested half width: coverage, half width and models of the rule, and of the usual interval."""
    print("| leak | asked | held | ± at the stop | models | the usual 95 % interval held |\n|---|---|---|---|---|---|")
    for leak in (0.0, 0.6):
        found = [looks(leak, seed) for seed in range(audits)]
        for asked in ASKED:
            ours, usual = (stopped([[pair[side] for pair in audit] for audit in found], asked) for side in (0, 1))
            cells = [f"{ours[0]:.1%}", f"{ours[1]:.4f}", f"{ours[2]:.1f}", f"{usual[0]:.1%}"]
            print(f"| {'yes' if leak else 'no'} | ± {asked} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
