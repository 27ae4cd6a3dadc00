"""`mia-audit train`: train a block of shadow models."""

import argparse
import shutil
from contextlib import suppress
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_run, add_shadows, add_spec, add_stamp, computing
from mia_audit.commands._training_sets import training_sets
from mia_audit.config.specs import TrainingSpec
from mia_audit.errors import UserError
from mia_audit.planning.limits import Run
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
    add_run(parser)
    parser.add_argument(
        "--first-epoch",
        action="store_true",
        help="stop after the first epoch of the first model, and keep its checkpoint alone",
    )
    add_stamp(parser)
    parser.add_argument(
        "--out", required=True, type=Path, help="folder of the setting's models, and of checkpoints (.checkpoints)"
    )


def run(options: argparse.Namespace) -> None:
    """Write a folder shadow-{k} and a table shadow-{k}.parquet for every missing shadow model."""
    planned = Run.read(options.run)
    acquire_gpu(planned.compute.device)
    from mia_audit.learners import Records, open_learner
    from mia_audit.training.block import Block, Checkpoints, train_block
    from mia_audit.training.preflight import FirstEpochTrained, first_epoch_of
    from mia_audit.training.stored import files_read, training_keys

    spec = TrainingSpec.read(options.spec)
    shadows = parse_range(options.shadows, "--shadows")
    architecture, learner = open_learner(options.architecture, computing(planned, options.threads))
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
    seconds = 0 if options.first_epoch else planned.compute.checkpoint_seconds
    checkpoints = Checkpoints(options.out / ".checkpoints", seconds, learner.environment)
    if options.stamp:
        clear_stamps(options.stamp.parent, shadows)
    if options.first_epoch:
        apart = options.out / ".preflight"  # because a model that exists would not be trained
        shutil.rmtree(apart, ignore_errors=True)
        with suppress(FirstEpochTrained):
            train_block(first_epoch_of(learner.train), block, apart, keys, checkpoints, planned.compute.keep_going)
        shutil.rmtree(apart, ignore_errors=True)
        return
    floor = planned.floors.get(f"{spec.dataset}/{spec.architecture}/{spec.mechanism_name}", 0.0)
    train_block(learner.train, block, options.out, keys, checkpoints, planned.compute.keep_going, floor)
    if options.stamp:
        write_stamp(options.stamp, keys)
