"""Commands for canaries: in a training run of the user's own, and in one of an audit."""

import argparse
from pathlib import Path
from typing import Any

from mia_audit.commands._arguments import add_device, add_pool, add_run, add_spec, computing
from mia_audit.config.specs import CanariesSpec, TrainingSpec
from mia_audit.errors import UserError
from mia_audit.planning.requests import RunFile
from mia_audit.runtime.machine import acquire_gpu

DEFAULT_KINDS = ("natural", "mislabelled", "rare", "noise")


def canaries_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two commands and their arguments."""
    commands = parser.add_subparsers(dest="step", required=True)
    make = commands.add_parser("make", description="Draw canaries, toss their coins, and write the set to train on.")
    source = make.add_mutually_exclusive_group(required=True)
    source.add_argument("--pool", type=Path, metavar="DIR", help="a pool, such as results/NAME/pools/DATASET")
    source.add_argument("--data", type=Path, metavar="PATH", help="a data set in a format of docs/how-to/pools.md")
    make.add_argument("--source", default="", help="name of the source that reads the data set (guessed from the path)")
    make.add_argument("--label", default="label", help="tables: the column of the class (label)")
    make.add_argument("--count", type=int, default=1000, help="canaries (1000)")
    make.add_argument("--kinds", nargs="+", action="extend", help="kinds of canaries (all)")
    make.add_argument("--seed", type=int, help="for experiments only: whoever knows the seed knows the coins")
    make.add_argument("--out", type=Path, required=True, help="a new folder, for train/, ask/ and auditor/")
    score = commands.add_parser("score", description="Join the scores of canaries with their coins.")
    score.add_argument("--canaries", type=Path, required=True, metavar="DIR", help="folder that `canaries make` wrote")
    given = score.add_mutually_exclusive_group(required=True)
    given.add_argument("--model", type=Path, metavar="DIR", help="the trained model, to query (with --architecture)")
    given.add_argument(
        "--outputs", type=Path, metavar="FILE", help="logits or probabilities of ask/records.npy, .npy [m, C]"
    )
    given.add_argument("--scores", type=Path, metavar="FILE", help="your own scores: a CSV file with canary and score")
    score.add_argument("--architecture", type=Path, metavar="FILE", help="architecture.json of the model")
    score.add_argument(
        "--kinds",
        nargs="+",
        action="extend",
        default=[],
        help="use only canaries of these kinds; choose them beforehand",
    )
    score.add_argument("--out", type=Path, required=True, help="CSV file for `epsilon-bound --design bernoulli`")
    add_device(score)


def run_canaries(options: argparse.Namespace) -> None:
    """Make canaries, or score them."""
    {"make": _make, "score": _score}[options.step](options)


def _make(options: argparse.Namespace) -> None:
    import numpy as np

    from mia_audit.canaries.draw import make

    records, labels, metadata = _read(options)
    canaries = make(
        np.asarray(records),
        labels,
        metadata,
        names=options.kinds or list(DEFAULT_KINDS),
        count=options.count,
        out=options.out,
        seed=options.seed,
    )
    inside = int(canaries.member.sum())
    print(f"{options.out / 'train'}: train on all of these {len(canaries.others) + inside} records, and on no others")
    print(f"{options.out / 'ask'}: query the trained model on these {options.count} canaries")
    print(
        f"{options.out / 'auditor'}: keep this secret from whoever trains the model: it says which canaries are in the training set"
    )


def _read(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    if options.pool:
        from mia_audit.pools.store import read_records

        stored = read_records(options.pool)
        return stored.data, stored.labels, stored.metadata
    from mia_audit.pools import pools
    from mia_audit.pools.build import build_pool
    from mia_audit.pools.section import Dataset

    section = Dataset(source=options.source or _source(options.data), path=str(options.data), label=options.label)
    pools.check(section.source)
    pool = build_pool(pools[section.source].load(section, "--data"), section, "canaries", options.seed or 0)
    return pool.audited.data, pool.audited.labels, pool.metadata


def _source(path: Path) -> str:
    """Guess the source for a path: arrays, a table, or a folder of images."""
    if path.suffix == ".npz" or (path / "records.npy").exists():
        return "arrays"
    return "images" if path.is_dir() else "table"


def _score(options: argparse.Namespace) -> None:
    from mia_audit.canaries.draw import ask, read_asked, read_coins, read_given, read_outputs, scored
    from mia_audit.commands._arguments import compute_of
    from mia_audit.learners.protocol import Compute
    from mia_audit.sanitise import csv
    from mia_audit.storage import write_text

    coins = read_coins(options.canaries)
    if options.scores:
        scores = read_given(options.scores, len(coins.kind))
    else:
        asked = read_asked(options.canaries, coins)
        if options.outputs:
            scores = read_outputs(options.outputs, asked.labels)
        elif not options.architecture:
            raise UserError(
                "--model: the architecture is not known; add --architecture, a file that `mia-audit architecture` writes"
            )
        else:
            compute: Compute = compute_of(argparse.Namespace(**vars(options), batch=256))
            scores = ask(options.architecture, options.model, asked, compute)
    table = scored(scores, coins, options.kinds)
    write_text(options.out, csv(table))
    print(f"{options.out}: {len(table)} canaries; mia-audit epsilon-bound --design bernoulli --scores {options.out} …")


def canary_draw_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, CanariesSpec)
    add_pool(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the canaries")


def run_canary_draw(options: argparse.Namespace) -> None:
    """Write the folders train, ask and auditor. Coins are tossed with the system's entropy."""
    import numpy as np

    from mia_audit.canaries.draw import make
    from mia_audit.pools.store import read_records

    spec, stored = CanariesSpec.read(options.spec), read_records(options.pool)
    make(np.asarray(stored.data), stored.labels, stored.metadata, names=spec.kinds, count=spec.count, out=options.out)


CONFIDENCE, DELTA = 0.95, 1e-5
"""Confidence of the bounds, and their δ if the setting has none."""


def canary_bounds_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, TrainingSpec)
    add_pool(parser)
    parser.add_argument("--canaries", required=True, type=Path, help="folder that `canary-draw` wrote")
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--public", type=Path, nargs="?", help="weights to start from; empty for random weights")
    add_run(parser)
    parser.add_argument("--out", required=True, type=Path, help="CSV file for the bounds, one row per method")


def run_canary_bounds(options: argparse.Namespace) -> None:
    """Train on canaries/train without a seed, query the model on canaries/ask, and write the bounds; the model is not kept."""
    planned = RunFile.read(options.run)
    acquire_gpu(planned.compute.device)
    import numpy as np
    import polars as pl

    from mia_audit.canaries.draw import TRAIN, bounds, confidence, read_asked, read_coins, scored
    from mia_audit.learners.protocol import open_learner
    from mia_audit.pools.store import read_records
    from mia_audit.sanitise import csv
    from mia_audit.sections import budget
    from mia_audit.storage import write_text
    from mia_audit.training.task import Records, TrainingTask

    spec = TrainingSpec.read(options.spec)
    architecture, learner = open_learner(options.architecture, computing(planned, options.threads))
    records = Records.from_stored(read_records(options.canaries / TRAIN))
    reads_public = architecture.get("reads_public", False) or spec.mechanism.kind.reads_public_records(spec.mechanism)
    task = TrainingTask(
        records=records,
        members=np.ones(len(records), dtype=bool),
        training=spec.training,
        mechanism=spec.mechanism,
        epsilon=budget(spec.epsilon),
        key=None,
        public=Records.from_stored(read_records(options.pool, "public")) if reads_public else None,
        start=options.public,
    )
    model, coins = learner.train(task), read_coins(options.canaries)
    asked = read_asked(options.canaries, coins)
    scores = confidence(np.asarray(model.logits(Records.from_stored(asked))), asked.labels, str(options.architecture))
    kind = spec.mechanism.kind
    delta = spec.mechanism.delta if kind.private else DELTA
    gaussian = kind.private and not kind.claimed and not kind.no_guarantee
    table = bounds(scored(scores, coins), delta, CONFIDENCE, gaussian=gaussian)
    spent = getattr(model, "epsilon", task.epsilon)  # learners other than the built-in loop only claim an ε
    write_text(options.out, csv(table.with_columns(epsilon_spent=pl.lit(spent))))
