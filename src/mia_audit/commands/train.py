"""`mia-audit train`: train a block of shadow models."""

import argparse
from contextlib import suppress
from pathlib import Path

from mia_audit.commands._arguments import (
    add_batch,
    add_checkpoints,
    add_device,
    add_minutes,
    add_pool,
    add_shadows,
    add_spec,
    add_stamp,
    compute_of,
)
from mia_audit.commands._training_sets import training_sets
from mia_audit.config.specs import TrainingSpec
from mia_audit.errors import UserError
from mia_audit.pools.store import read_records
from mia_audit.runtime.gpus import acquire_gpu
from mia_audit.storage.stamps import clear_stamps, parse_range, write_stamp


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, TrainingSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--public", type=Path, nargs="?", help="weights to start from; empty for random weights")
    add_shadows(parser, "train")
    add_device(parser)
    add_batch(parser)
    add_minutes(parser)
    add_checkpoints(parser)
    parser.add_argument(
        "--keep-going",
        type=int,
        choices=[0, 1],
        default=0,
        help="1: leave out models whose training diverges; 0: stop (0)",
    )
    parser.add_argument(
        "--floor", type=float, default=0.0, help="smallest test accuracy of the first model; below it the job stops (0)"
    )
    parser.add_argument(
        "--first-epoch",
        action="store_true",
        help="stop after the first epoch of the first model; with --checkpoint-seconds 0, keep its checkpoint",
    )
    add_stamp(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the setting's models")


def run(options: argparse.Namespace) -> None:
    """Write a folder shadow-{k} and a table shadow-{k}.parquet for every missing shadow model."""
    acquire_gpu(options.device)
    from mia_audit.learners import Records, open_learner
    from mia_audit.training.block import Block, Checkpoints, train_block
    from mia_audit.training.preflight import FirstEpochTrained, first_epoch_of
    from mia_audit.training.stored import files_read, training_keys

    spec = TrainingSpec.read(options.spec)
    shadows = parse_range(options.shadows, "--shadows")
    architecture, learner = open_learner(options.architecture, compute_of(options))
    records = Records.of(read_records(options.pool))
    # public records are read only if the mechanism or the learner needs them; otherwise they are not inputs of the rule
    reads_public = architecture.get("reads_public", False) or spec.mechanism.kind.reads_public_records(spec.mechanism)
    block = Block(
        spec.seed,
        spec.dataset,
        spec.architecture,
        spec.mechanism_name,
        spec.epsilon,
        shadows,
        training_sets(spec, options.pool, shadows, len(records)),
        records,
        spec.training,
        spec.mechanism,
        Records.of(read_records(options.pool, "public")) if reads_public else None,
        options.public,
        spec.weights == "bf16",
    )
    if options.public and not options.public.exists():
        raise UserError(f"{options.public}: no such file; expected weights to start from, in safetensors")
    inputs = files_read(options.pool, options.architecture, options.public, reads_public)
    keys = training_keys(shadows, block.membership, spec.contents(), inputs)
    checkpoints = Checkpoints(options.checkpoints, options.checkpoint_seconds, learner.environment)
    if options.stamp:
        clear_stamps(options.stamp.parent, shadows)
    train = first_epoch_of(learner.train) if options.first_epoch else learner.train
    with suppress(FirstEpochTrained):
        train_block(
            train,
            block,
            options.out,
            keys,
            checkpoints,
            bool(options.keep_going),
            options.floor,
        )
    if options.stamp:
        write_stamp(options.stamp, keys)
