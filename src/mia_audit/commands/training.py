"""Stages that train shadow models, and delete weights that are no longer needed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.commands._arguments import add_pool, add_run, add_shadows, add_spec, add_stamp, computing
from mia_audit.config.specs import SignalsSpec, TrainingSpec
from mia_audit.errors import UserError
from mia_audit.planning.requests import RunFile
from mia_audit.pools.store import draw_training_sets, read_membership, read_records
from mia_audit.registry import forgotten_files
from mia_audit.runtime.machine import acquire_gpu
from mia_audit.storage.tables import clear_stamps, parse_range, write_stamp

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool


def discard_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", required=True, type=Path, help="folder of the setting's models")
    add_shadows(parser, "discard")
    parser.add_argument("--keep", type=int, default=0, help="number of first models that keep their weights (0)")
    parser.add_argument("--out", required=True, type=Path, help="a file with the number of deleted models")


def run_discard(options: argparse.Namespace) -> None:
    """Delete the models' files, but keep their tables, the masks of their noise and the first model."""
    from mia_audit.storage import write_text
    from mia_audit.training.stored import discard

    shadows = parse_range(options.shadows, "--shadows")
    write_text(options.out, f"{discard(options.models, shadows, options.keep)} models\n")


def training_sets(
    spec: TrainingSpec | SignalsSpec, pool: Path, shadows: Iterable[int], records: int
) -> Bool[np.ndarray, "n k"]:
    """Return models' training sets, [records, models].

    If the specification describes how training sets are drawn, they are drawn again. A job then does not depend on the
    table of all models, which changes with their number. Otherwise they are read from the pool's membership.parquet.
    """
    if spec.draw is None:
        return read_membership(pool / "membership.parquet", shadows, records)
    return draw_training_sets(spec.draw, pool / "records.parquet", spec.dataset, spec.seed, shadows)


def train_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, TrainingSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--public", type=Path, nargs="?", help="weights to start from; empty for random weights")
    add_shadows(parser, "train")
    add_run(parser)
    add_stamp(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the setting's models and .checkpoints")


def run_train(options: argparse.Namespace) -> None:
    """Write a folder shadow-{k} and a table shadow-{k}.parquet for every missing shadow model."""
    planned = RunFile.read(options.run)
    acquire_gpu(planned.compute.device)
    from mia_audit.learners.protocol import TrainedModel, open_learner
    from mia_audit.training.block import Block, Checkpoints, train_block
    from mia_audit.training.stored import files_read, training_keys
    from mia_audit.training.task import Records

    spec = TrainingSpec.read(options.spec)
    shadows = parse_range(options.shadows, "--shadows")
    architecture, learner = open_learner(options.architecture, computing(planned, options.threads))
    records = Records.from_stored(read_records(options.pool))
    # public records are read only if the mechanism or the learner needs them; otherwise they are not inputs of the rule
    reads_public = architecture.get("reads_public", False) or spec.mechanism.kind.reads_public_records(spec.mechanism)
    block = Block(
        seed=spec.seed,
        dataset=spec.dataset,
        architecture=spec.architecture,
        mechanism_name=spec.mechanism_name,
        epsilon=spec.epsilon,
        shadows=shadows,
        membership=training_sets(spec, options.pool, shadows, len(records)),
        records=records,
        training=spec.training,
        mechanism=spec.mechanism,
        public=Records.from_stored(read_records(options.pool, "public")) if reads_public else None,
        start=options.public,
    )
    if options.public and not options.public.exists():
        raise UserError(f"{options.public}: no such file; expected weights to start from, in safetensors")
    inputs = files_read(options.pool, options.architecture, options.public, reads_public)
    keys = training_keys(shadows, block.membership, spec.contents(), inputs)
    checkpoints = Checkpoints(options.out / ".checkpoints", planned.compute.checkpoint_seconds, learner.environment)
    if options.stamp:
        clear_stamps(options.stamp.parent, shadows)
    floor = planned.floors.get(f"{spec.dataset}/{spec.architecture}/{spec.mechanism_name}", 0.0)

    def read_back(folder: Path) -> TrainedModel:
        """Open a stored model as another process does: what the user's files keep in memory is not there."""
        with forgotten_files(architecture.get("code", {})):
            return open_learner(options.architecture, computing(planned, options.threads))[1].load(folder)

    train_block(
        learner.train,
        block,
        options.out,
        keys=keys,
        checkpoints=checkpoints,
        keep_going=planned.compute.keep_going,
        floor=floor,
        read_back=read_back,
    )
    if options.stamp:
        write_stamp(options.stamp, keys)
