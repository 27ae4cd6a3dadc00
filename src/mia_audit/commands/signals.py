"""`mia-audit signals`: compute one family of signals of a block of shadow models."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mia_audit.commands._arguments import add_batch, add_device, add_minutes, add_pool, add_spec, compute_of
from mia_audit.config.specs import SignalsSpec
from mia_audit.errors import UserError
from mia_audit.runtime.gpus import acquire_gpu
from mia_audit.storage.diverged import diverged_of_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, SignalsSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json of the models")
    parser.add_argument(
        "--models", required=True, type=Path, help="folder that holds the blocks' folders of shadow-{k}"
    )
    parser.add_argument(
        "--membership",
        type=Path,
        nargs="?",
        help="membership.parquet, for explainers that read training records; may be left empty",
    )
    add_device(parser)
    add_batch(parser)
    add_minutes(parser)
    parser.add_argument("--out", required=True, type=Path, help="the signals, Parquet")


def run(options: argparse.Namespace) -> None:
    """Write the family's signals, one row group per shadow."""
    from mia_audit.training.block import TABLE, shadow_folders

    spec = SignalsSpec.read(options.spec)
    blocks = [options.models / block for block in spec.blocks]
    folders = {shadow: path for block in blocks for shadow, path in shadow_folders(block).items()}
    diverged = diverged_of_all([path for block in blocks if (path := block / TABLE).exists()], "training")
    acquire_gpu(options.device)
    import numpy as np
    import pyarrow as pa

    from mia_audit.learners import Records, TrainedOn, open_learner
    from mia_audit.pools.store import read_membership, read_records
    from mia_audit.signals.compute import Task, model_signals
    from mia_audit.signals.families import columns
    from mia_audit.storage import write_table

    compute = compute_of(options)
    stored = read_records(options.pool)
    records = Records.of(stored)
    _, learner = open_learner(options.architecture, compute)
    task = Task(spec.family, spec.options, spec.seed, compute.batch)
    count = len(records)
    membership = read_membership(options.membership, folders, count) if options.membership else None

    def tables() -> Iterator[pa.Table]:
        for column, (shadow, folder) in enumerate(folders.items()):
            model = learner.load(folder)
            trained_on = (
                TrainedOn(records, membership[:, column], shadow, stored.units) if membership is not None else None
            )
            start = time.perf_counter()
            try:
                signals = model_signals(model, records, replace(task, model=shadow), trained_on)
            except UserError as error:
                raise UserError(f"{folder}: {error}") from None
            rate = count / (time.perf_counter() - start)
            print(f"shadow {shadow}: {count} records, {rate:,.0f} records/s", flush=True)
            numbers = {"shadow": np.full(count, shadow, dtype=np.int32), "record": np.arange(count, dtype=np.int32)}
            yield pa.table({name: pa.array(values) for name, values in (numbers | signals).items()})

    def empty_table() -> pa.Table:
        types = dict.fromkeys(("shadow", "record", "label", "predicted"), pa.int32())
        names = ["shadow", "record", *columns(task.family, task.options)]
        return pa.schema([(name, types.get(name, pa.float32())) for name in names]).empty_table()

    computed = tables() if folders else iter([empty_table()])
    write_table(options.out, computed, "signals", count * len(folders), diverged)
