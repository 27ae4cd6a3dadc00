"""`mia-audit canary-bounds`: train once on canaries, as for a release, and compute lower bounds on ε."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_run, add_spec, computing
from mia_audit.config.specs import TrainingSpec
from mia_audit.planning.limits import Run
from mia_audit.runtime.gpus import acquire_gpu

CONFIDENCE, DELTA = 0.95, 1e-5
"""Confidence of the bounds, and their δ if the setting has none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, TrainingSpec)
    add_pool(parser)
    parser.add_argument("--canaries", required=True, type=Path, help="folder that `canary-draw` wrote")
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--public", type=Path, nargs="?", help="weights to start from; empty for random weights")
    add_run(parser)
    parser.add_argument("--out", required=True, type=Path, help="CSV file for the bounds, one row per method")


def run(options: argparse.Namespace) -> None:
    """Train on canaries/train without a seed, query the model on canaries/ask, and write the bounds; the model is not kept."""
    planned = Run.read(options.run)
    acquire_gpu(planned.compute.device)
    import numpy as np

    from mia_audit.canaries.folders import TRAIN, read_asked, read_coins
    from mia_audit.canaries.score import bounds, confidence, scored
    from mia_audit.learners import Records, TrainingTask, open_learner
    from mia_audit.pools.store import read_records
    from mia_audit.sanitise import csv
    from mia_audit.sections import budget
    from mia_audit.storage import write_text

    spec = TrainingSpec.read(options.spec)
    architecture, learner = open_learner(options.architecture, computing(planned, options.threads))
    records = Records.of(read_records(options.canaries / TRAIN))
    reads_public = architecture.get("reads_public", False) or spec.mechanism.kind.reads_public_records(spec.mechanism)
    task = TrainingTask(
        records,
        np.ones(len(records), dtype=bool),
        spec.training,
        spec.mechanism,
        budget(spec.epsilon),
        None,
        public=Records.of(read_records(options.pool, "public")) if reads_public else None,
        start=options.public,
    )
    model, coins = learner.train(task), read_coins(options.canaries)
    asked = read_asked(options.canaries, coins)
    scores = confidence(np.asarray(model.logits(Records.of(asked))), asked.labels, str(options.architecture))
    delta = spec.mechanism.delta if spec.mechanism.kind.private else DELTA
    write_text(options.out, csv(bounds(scored(scores, coins), delta, CONFIDENCE)))
