"""`mia-audit signals`: compute the signals of some shadow models."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mia_audit.commands._arguments import add_pool, add_run, add_shadows, add_spec, add_stamp, computing
from mia_audit.commands._training_sets import training_sets
from mia_audit.config.expand import needs_training_records
from mia_audit.config.specs import SignalsSpec
from mia_audit.errors import UserError
from mia_audit.planning.limits import Run
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
    add_run(parser)
    add_stamp(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder for the signals, {family}/shadow-{k}.parquet")


def run(options: argparse.Namespace) -> None:
    """Write the missing signals: for every family, one table per shadow model."""
    from mia_audit.training.stored import model_table, require_weights, shadow_folders, stated_digests

    spec, planned = SignalsSpec.read(options.spec), Run.read(options.run)
    shadows = parse_range(options.shadows, "--shadows")
    folders = shadow_folders(options.models, shadows, weights=False)  # existing signals need no model
    acquire_gpu(planned.compute.device)
    import numpy as np
    import pyarrow as pa

    from mia_audit.learners import Records, TrainedModel, TrainedOn, open_learner
    from mia_audit.pools.store import read_membership, read_records
    from mia_audit.signals.compute import Task, model_signals
    from mia_audit.signals.families import columns
    from mia_audit.storage import sha256, write_table
    from mia_audit.storage.diverged import diverged_metadata, diverged_models
    from mia_audit.training.identity import identity

    compute = computing(planned, options.threads)
    stored = read_records(options.pool)
    records = Records.of(stored)
    _, learner = open_learner(options.architecture, compute)
    count = len(records)
    reading = {family for family, known in spec.families.items() if needs_training_records(known["explainers"])}
    membership: dict[int, Any] = {}
    if folders and (options.membership or spec.draw):
        given = options.membership
        member = read_membership(given, folders, count) if given else training_sets(spec, options.pool, folders, count)
        membership = dict(zip(folders, member.T, strict=True))
    files = {path.name: sha256(path) for path in (options.pool / "records.parquet", options.architecture)}

    def key_of(family: str, shadow: int, folder: Path) -> str:
        members = membership[shadow].nonzero()[0].tolist() if family in reading and membership else []
        model = stated_digests(options.models, shadow, folder)
        return identity(spec=spec.of_family(family), files=files, model=model, shadow=shadow, members=members)

    def table_of(family: str, shadow: int, folder: Path, model: TrainedModel) -> pa.Table:
        trained_on = TrainedOn(records, membership[shadow], shadow, stored.units) if membership else None
        task = Task(family, spec.families[family], spec.seed, compute.batch, shadow)
        try:
            signals = model_signals(model, records, task, trained_on)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        numbers = {"shadow": np.full(count, shadow, dtype=np.int32), "record": np.arange(count, dtype=np.int32)}
        return pa.table({name: pa.array(values) for name, values in (numbers | signals).items()})

    def empty_table(family: str) -> pa.Table:
        types = dict.fromkeys(("shadow", "record", "label", "predicted"), pa.int32())
        names = ["shadow", "record", *columns(family, spec.families[family])]
        return pa.schema([(name, types.get(name, pa.float32())) for name in names]).empty_table()

    if options.stamp:
        clear_stamps(options.stamp.parent, shadows)
    keys = {
        shadow: {family: key_of(family, shadow, folder) for family in spec.families}
        for shadow, folder in folders.items()
    }
    for shadow in shadows:
        paths = {family: options.out / family / f"shadow-{shadow}.parquet" for family in spec.families}
        if shadow not in folders:
            lost = diverged_models(model_table(options.models, shadow), "training")
            metadata = diverged_metadata({str(number): reason for number, reason in lost.items()})
            for family, path in paths.items():
                write_table(path, empty_table(family), "signals", 0, metadata)
            continue
        missing = [family for family, path in paths.items() if not _computed(path, keys[shadow][family])]
        if not missing:
            print(f"shadow {shadow}: already computed", flush=True)
            continue
        require_weights(folders[shadow])
        model = learner.load(folders[shadow])
        for family in missing:
            table = table_of(family, shadow, folders[shadow], model)
            write_table(paths[family], table, "signals", count, {KEY: keys[shadow][family]})
        print(f"shadow {shadow}: {', '.join(missing)} of {count} records", flush=True)
    if options.stamp:
        write_stamp(options.stamp, {shadow: identity(**known) for shadow, known in keys.items()})


KEY = "key"
"""Metadata key of a model's table of signals, for the digest of everything that the signals depend on."""


def _computed(path: Path, key: str) -> bool:
    """Return whether a complete table of the signals with this key exists."""
    from mia_audit.storage import digests, table_metadata

    if not path.exists() or digests.state(path) != "whole":
        return False
    metadata: Mapping[str, Any] = table_metadata(path, "signals")
    return metadata.get(KEY) == key
