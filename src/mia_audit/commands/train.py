"""`mia-audit train`: train a block of shadow models."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import (
    add_batch,
    add_checkpoints,
    add_device,
    add_minutes,
    add_pool,
    add_spec,
    compute_of,
)
from mia_audit.config.specs import TrainingSpec
from mia_audit.errors import UserError
from mia_audit.pools.store import read_membership, read_records
from mia_audit.runtime.gpus import acquire_gpu
from mia_audit.storage import sha256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, TrainingSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--public", type=Path, nargs="?", help="weights to start from; may be left empty")
    parser.add_argument("--shadows", required=True, help="first and last shadow model, such as 0-8")
    add_device(parser)
    add_batch(parser)
    add_minutes(parser)
    add_checkpoints(parser)
    parser.add_argument(
        "--keep-going",
        type=int,
        choices=[0, 1],
        default=0,
        help="1: leave out models whose training diverges (0: stop)",
    )
    parser.add_argument(
        "--step-times",
        type=Path,
        help="table of how long steps took, Parquet; outside of --out, whose bytes never differ",
    )
    parser.add_argument(
        "--repeats",
        type=Path,
        help="JSON file of digests of what came of every training, to notice a rerun that differs; outside of --out",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of the block")


def run(options: argparse.Namespace) -> None:
    """Write a folder shadow-{k} for every shadow model of the block, and training.parquet."""
    acquire_gpu(options.device)
    from mia_audit.learners import Records, open_learner
    from mia_audit.training.block import Block, Checkpoints, train_block

    spec = TrainingSpec.read(options.spec)
    shadows = _range(options.shadows)
    architecture, learner = open_learner(options.architecture, compute_of(options))
    records = Records.of(read_records(options.pool))
    # read only where mechanism or learner need them: the rule of others does not name them as inputs
    reads_public = architecture.get("reads_public", False) or spec.mechanism.kind.reads_public_records(spec.mechanism)
    block = Block(
        spec.seed,
        spec.dataset,
        spec.architecture,
        spec.mechanism_name,
        spec.epsilon,
        shadows,
        read_membership(options.pool / "membership.parquet", shadows, len(records)),
        records,
        spec.training,
        spec.mechanism,
        Records.of(read_records(options.pool, "public")) if reads_public else None,
        options.public,
    )
    if options.public and not options.public.exists():
        raise UserError(f"{options.public}: no such file; expected weights to start from, in safetensors")
    inputs = [options.pool / "records.parquet", options.architecture]
    inputs += [options.public] if options.public else []
    inputs += [options.pool / "public.parquet"] if reads_public else []
    depends_on = {
        "spec": spec.contents(),
        "environment": dict(learner.environment),
        "files": {path.name: sha256(path) for path in inputs},
    }
    checkpoints = Checkpoints(options.checkpoints, options.checkpoint_seconds, depends_on)
    keep_going = bool(options.keep_going)
    train_block(learner.train, block, options.out, checkpoints, keep_going, options.step_times, options.repeats)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise UserError(f"--shadows: first-last was expected, such as 0-8, not '{text}'")
    return range(int(first), int(last) + 1)
