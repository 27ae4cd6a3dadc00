"""`mia-audit signals`: compute one family of signals of some shadow models."""

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mia_audit.commands._arguments import (
    add_batch,
    add_device,
    add_minutes,
    add_pool,
    add_shadows,
    add_spec,
    add_stamp,
    compute_of,
)
from mia_audit.commands._training_sets import training_sets
from mia_audit.config.specs import SignalsSpec
from mia_audit.errors import UserError
from mia_audit.runtime.gpus import acquire_gpu
from mia_audit.storage.stamps import clear_stamps, parse_range, write_stamp


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, SignalsSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json of the models")
    parser.add_argument("--models", required=True, type=Path, help="folder that holds the models' folders shadow-{k}")
    add_shadows(parser, "explain")
    parser.add_argument(
        "--membership",
        type=Path,
        nargs="?",
        help="membership.parquet; needed if explainers read training records and the specification does not draw training sets",
    )
    add_device(parser)
    add_batch(parser)
    add_minutes(parser)
    add_stamp(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder for the signals, shadow-{k}.parquet")


def run(options: argparse.Namespace) -> None:
    """Write the family's missing signals, one table per shadow model."""
    from mia_audit.training.stored import model_table, require_weights, shadow_folders, stated_digests

    spec = SignalsSpec.read(options.spec)
    shadows = parse_range(options.shadows, "--shadows")
    folders = shadow_folders(options.models, shadows, weights=False)  # existing signals need no model
    acquire_gpu(options.device)
    import numpy as np
    import pyarrow as pa

    from mia_audit.learners import Records, TrainedOn, open_learner
    from mia_audit.pools.store import read_membership, read_records
    from mia_audit.signals.compute import Task, model_signals
    from mia_audit.signals.families import columns
    from mia_audit.storage import sha256, write_table
    from mia_audit.storage.diverged import diverged_metadata, diverged_models
    from mia_audit.training.identity import identity

    compute = compute_of(options)
    stored = read_records(options.pool)
    records = Records.of(stored)
    _, learner = open_learner(options.architecture, compute)
    task = Task(spec.family, spec.options, spec.seed, compute.batch)
    count = len(records)
    membership: dict[int, Any] = {}
    if folders and (options.membership or spec.draw):
        given = options.membership
        member = read_membership(given, folders, count) if given else training_sets(spec, options.pool, folders, count)
        membership = dict(zip(folders, member.T, strict=True))
    files = {path.name: sha256(path) for path in (options.pool / "records.parquet", options.architecture)}

    def key_of(shadow: int, folder: Path) -> str:
        members = membership[shadow].nonzero()[0].tolist() if membership else []
        model = stated_digests(options.models, shadow, folder)
        return identity(spec=spec.contents(), files=files, model=model, shadow=shadow, members=members)

    def table_of(shadow: int, folder: Path) -> pa.Table:
        require_weights(folder)
        model = learner.load(folder)
        trained_on = TrainedOn(records, membership[shadow], shadow, stored.units) if membership else None
        start = time.perf_counter()
        try:
            signals = model_signals(model, records, replace(task, model=shadow), trained_on)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        rate = count / (time.perf_counter() - start)
        print(f"shadow {shadow}: {count} records, {rate:,.0f} records/s", flush=True)
        numbers = {"shadow": np.full(count, shadow, dtype=np.int32), "record": np.arange(count, dtype=np.int32)}
        return pa.table({name: pa.array(values) for name, values in (numbers | signals).items()})

    def empty_table() -> pa.Table:
        types = dict.fromkeys(("shadow", "record", "label", "predicted"), pa.int32())
        names = ["shadow", "record", *columns(task.family, task.options)]
        return pa.schema([(name, types.get(name, pa.float32())) for name in names]).empty_table()

    if options.stamp:
        clear_stamps(options.stamp.parent, shadows)
    keys = {shadow: key_of(shadow, folder) for shadow, folder in folders.items()}
    for shadow in shadows:
        path = options.out / f"shadow-{shadow}.parquet"
        if shadow not in folders:
            lost = diverged_models(model_table(options.models, shadow), "training")
            metadata = diverged_metadata({str(number): reason for number, reason in lost.items()})
            write_table(path, empty_table(), "signals", 0, metadata)
        elif _computed(path, keys[shadow]):
            print(f"shadow {shadow}: already computed", flush=True)
        else:
            write_table(path, table_of(shadow, folders[shadow]), "signals", count, {KEY: keys[shadow]})
    if options.stamp:
        write_stamp(options.stamp, keys)


KEY = "key"
"""Metadata key of a model's table of signals, for the digest of everything that the signals depend on."""


def _computed(path: Path, key: str) -> bool:
    """Return whether a complete table of the signals with this key exists."""
    from mia_audit.storage import digests, table_metadata

    if not path.exists() or digests.state(path) != "whole":
        return False
    metadata: Mapping[str, Any] = table_metadata(path, "signals")
    return metadata.get(KEY) == key
