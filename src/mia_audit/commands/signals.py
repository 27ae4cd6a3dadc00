"""Stages that compute the signals of shadow models, and join the tables of a setting's models."""

import argparse
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mia_audit.attacks.io.parquet import GIVEN, TARGET, UNLIKE
from mia_audit.commands._arguments import add_pool, add_run, add_shadows, add_spec, add_stamp, computing
from mia_audit.commands.training import training_sets
from mia_audit.config.expand import needs_training_records
from mia_audit.config.specs import MergeSpec, SignalsSpec
from mia_audit.errors import UserError
from mia_audit.planning.requests import RunFile
from mia_audit.pools.persons import Persons
from mia_audit.pools.store import persons_of, read_membership
from mia_audit.runtime.machine import acquire_gpu
from mia_audit.storage import naming_damage, open_table, read_table, table_metadata, write_table
from mia_audit.storage.tables import (
    DIVERGED,
    STAMPS,
    clear_stamps,
    diverged_of_all,
    encoding_of,
    parse_range,
    write_stamp,
)


def signals_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_signals(options: argparse.Namespace) -> None:
    """Write the missing signals: for every family, one table per shadow model."""
    from mia_audit.training.stored import model_table, require_weights, shadow_folders, stated_digests

    spec, planned = SignalsSpec.read(options.spec), RunFile.read(options.run)
    shadows = parse_range(options.shadows, "--shadows")
    folders = shadow_folders(options.models, shadows, weights=False)  # existing signals need no model
    acquire_gpu(planned.compute.device)
    from mia_audit.learners.protocol import TrainedModel, TrainedOn, open_learner
    from mia_audit.pools.store import read_records
    from mia_audit.signals.compute import SignalsTask, model_signals
    from mia_audit.signals.families import columns
    from mia_audit.storage import sha256
    from mia_audit.storage.tables import column_of, diverged_metadata, diverged_models
    from mia_audit.training.task import Records, identity

    compute = computing(planned, options.threads)
    stored = read_records(options.pool)
    records = Records.from_stored(stored)
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
        task = SignalsTask(family, spec.families[family], spec.seed, compute.micro_batch, shadow)
        try:
            signals = model_signals(model, records, task, trained_on)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        numbers = {"shadow": np.full(count, shadow, dtype=np.int32), "record": np.arange(count, dtype=np.int32)}
        return pa.table({name: column_of(values) for name, values in (numbers | signals).items()})

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
            write_table(
                paths[family], table, "signals", count, {KEY: keys[shadow][family]}, **encoding_of(table.schema)
            )
        print(f"shadow {shadow}: {', '.join(missing)} of {count} records", flush=True)
    if options.stamp:
        write_stamp(options.stamp, {shadow: identity(**known) for shadow, known in keys.items()})


KEY = "key"
"""Metadata key of a model's table of signals, for the digest of everything that the signals depend on."""


def _computed(path: Path, key: str) -> bool:
    """Return whether a complete table of the signals with this key exists."""
    from mia_audit.storage import digests

    if not path.exists() or digests.state(path) != "whole":
        return False
    metadata: Mapping[str, Any] = table_metadata(path, "signals")
    return metadata.get(KEY) == key


def merge_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, MergeSpec)
    parser.add_argument(
        "--signals",
        required=True,
        type=Path,
        help="folder that holds {family}/shadow-{k}.parquet; labels and outputs come from the first family",
    )
    parser.add_argument("--membership", required=True, type=Path, help="membership.parquet")
    parser.add_argument(
        "--references",
        type=Path,
        help="signals.parquet of a finished model's references; the finished model's own signals are appended",
    )
    parser.add_argument(
        "--records",
        type=Path,
        nargs="?",
        help="records.parquet of the pool; if the unit is the person, the table names the person of every record",
    )
    parser.add_argument("--models", type=Path, help="folder of the models, which holds shadow-{k}.parquet")
    parser.add_argument("--training", type=Path, help="the joined table of the models' training, with --models")
    parser.add_argument("--out", required=True, type=Path, help="the joined table of signals")


def run_merge(options: argparse.Namespace) -> None:
    """Write signals.parquet and training.parquet of a setting."""
    spec = MergeSpec.read(options.spec)
    trained = None
    if options.models and options.training:
        paths = [options.models / f"shadow-{shadow}.parquet" for shadow in spec.shadows]
        trained = _merge_training(paths, options.training)
    families = [
        [options.signals / family / f"shadow-{shadow}.parquet" for shadow in spec.shadows] for family in spec.families
    ]
    persons = persons_of(options.records) if options.records else None
    if options.references:
        _merge_target(families, options.membership, options.references, persons, options.out)
    else:
        member = read_membership(options.membership, spec.shadows)
        _merge_signals(families, member, persons, trained, options.out)


def _merge_training(paths: list[Path], out: Path) -> pa.Table:
    _require(paths)
    joined = pa.concat_tables([read_table(path, "training") for path in paths])
    write_table(out, joined, "training", len(joined), diverged_of_all(paths, "training"))
    return joined


LOSS_APART, ACCURACY_APART = 0.05, 0.02
"""The largest differences between a model's mean loss (relative) and accuracy after training and in its signals; rounding stays below."""


def _compared(tables: Iterator[pa.Table], trained: pa.Table, where: Path) -> Iterator[pa.Table]:
    """Yield the models' signals; UserError if a model's loss or accuracy is not the one that it had after its training."""
    stated = trained.filter(trained["train_loss"].is_valid()) if "train_loss" in trained.column_names else trained[:0]
    last = {row["shadow"]: row for row in stated.to_pylist()}
    for table in tables:
        shadow = table["shadow"][0].as_py()
        if shadow in last and set(table.column_names) >= OUTPUTS:
            for name, after in _outcomes(table).items():
                before = last[shadow][name]
                room = 0.01 + LOSS_APART * abs(before) if name.endswith("loss") else ACCURACY_APART
                if abs(after - before) > room + 1 / len(table):
                    raise UserError(
                        f"{where}: {name.replace('_', ' ')} of shadow {shadow} is {after:.4g}, and was {before:.4g} after its training:"
                        " the signals are of another model, or it is stored without something that it computes; delete"
                        f" {where.parent / 'models'} and run again"
                    )
        yield table


def _require(paths: list[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise UserError(
                f"{path}: no such file; expected a job's output for this model. Delete {path.parent / STAMPS} and run"
                " again: only missing files are computed"
            )


def _merge_signals(
    families: list[list[Path]], membership: np.ndarray, persons: Persons | None, trained: pa.Table | None, out: Path
) -> None:
    for paths in families:
        _require(paths)
    diverged = diverged_of_all(families[0], "signals")
    shadows = [shadow for shadow in range(membership.shape[1]) if str(shadow) not in diverged.get(DIVERGED, {})]
    ids = None if persons is None else pa.array(persons.spread(persons.ids))
    tables = _shadows(families, membership, shadows, ids) if shadows else iter([_empty(families)])
    if trained is not None and shadows:
        tables = _compared(tables, trained, out)
    first = next(tables)
    rows = len(membership) * len(shadows)
    write_table(out, chain([first], tables), "signals", rows, diverged, **encoding_of(first.schema))


def _merge_target(
    families: list[list[Path]], membership: Path, references: Path, persons: Persons | None, out: Path
) -> None:
    """Write the signals of the references, then those of the finished model."""
    member = read_membership(membership)
    metadata = table_metadata(membership, "membership")
    number = int(metadata[TARGET])
    ids = None if persons is None else pa.array(persons.spread(persons.ids))
    own = next(_shadows(families, member, [number], ids, first=number))
    count = open_table(references, "signals").metadata.num_rows

    def tables() -> Iterator[pa.Table]:
        yield from (group.select(own.column_names) for _, group in _row_groups([references]))
        yield own

    stated = {TARGET: number, GIVEN: metadata[GIVEN], UNLIKE: _unlike(own, references)}
    stated |= diverged_of_all([references], "signals")
    write_table(out, tables(), "signals", count + len(own), stated, **encoding_of(own.schema))


def _unlike(own: pa.Table, references: Path) -> dict[str, list[float]] | None:
    """Return a finished model's losses and accuracies outside the range in which those of one more reference would lie."""
    if not set(own.column_names) >= OUTPUTS:
        return None
    models = [_outcomes(group) for _, group in _row_groups([references])]
    unlike = {}
    for name, value in _outcomes(own).items():
        known = np.array([model[name] for model in models])
        room = max(4 * known.std(ddof=1) * (1 + 8 / len(known)), 0.02 + 0.05 * abs(known.mean()))
        if abs(value - known.mean()) > room:
            unlike[name] = [value, float(known.min()), float(known.max())]
    return unlike


OUTPUTS = {"member", "label", "predicted", "loss"}
"""The columns from which a model's loss and accuracy are computed."""


def _outcomes(table: pa.Table) -> dict[str, float]:
    """Return a model's loss and accuracy on its training records, and on the others."""
    member, losses = table["member"].to_numpy(), table["loss"].to_numpy()
    hits = table["label"].to_numpy() == table["predicted"].to_numpy()
    return {
        f"{part}_{what}": float(values[inside].mean(dtype=np.float64))
        for part, inside in (("train", member), ("test", ~member))
        for what, values in (("loss", losses), ("accuracy", hits))
        if inside.any()
    }


def _shadows(
    families: list[list[Path]], membership: np.ndarray, shadows: list[int], ids: pa.Array | None = None, first: int = 0
) -> Iterator[pa.Table]:
    """Yield the signals shadow by shadow: the columns of all families, with the record's membership and person.

    The columns of `membership` are numbered from `first`.

    Raises UserError unless the files hold exactly one row group per shadow, in order, with every record in order.
    """
    records = len(membership)
    order = pa.array(np.arange(records, dtype=np.int32))
    streams = [_row_groups(paths) for paths in families]
    for shadow in shadows:
        columns: dict[str, pa.ChunkedArray | pa.Array] = {
            "shadow": pa.array(np.full(records, shadow, dtype=np.int32)),
            "record": order,
            "member": pa.array(membership[:, shadow - first]),
            **({} if ids is None else {"person": ids}),
        }
        for stream in streams:
            path, group = next(stream, (None, None))
            if group is None:
                raise UserError(
                    f"{families[0][-1].parent}: no signals of shadow {shadow}; expected {len(shadows)} shadows. "
                    f"Delete {families[0][-1].parent / STAMPS} and run again"
                )
            if (
                len(group) != records
                or group["shadow"][0].as_py() != shadow
                or not group["record"].combine_chunks().equals(order)
            ):
                raise UserError(
                    f"{path}: expected the {records} records of shadow {shadow}, in order. Delete it and run again"
                )
            columns |= {name: group[name] for name in group.column_names if name not in columns}
        yield pa.table(columns)
    for stream in streams:
        if (surplus := next(stream, None)) is not None:
            raise UserError(
                f"{surplus[0]}: more shadows than the {len(shadows)} expected. Delete this file of signals and run again"
            )


def _empty(families: list[list[Path]]) -> pa.Table:
    """Return a table without rows that has the families' columns."""
    columns = {"shadow": pa.int32(), "record": pa.int32(), "member": pa.bool_()}
    for paths in families:
        columns |= {field.name: field.type for field in open_table(paths[0], "signals").schema_arrow}
    return pa.schema(columns).empty_table()


def _row_groups(paths: list[Path]) -> Iterator[tuple[Path, pa.Table]]:
    for path in paths:
        file = open_table(path, "signals", ["shadow", "record"])
        for index in range(file.num_row_groups):
            with naming_damage(path, "signals"):
                group = file.read_row_group(index)
            if len(group):
                yield path, group
