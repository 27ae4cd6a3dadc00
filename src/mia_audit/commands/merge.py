"""`mia-audit merge`: join the tables of all shadow models of a setting."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from mia_audit.attacks.io.parquet import GIVEN, TARGET
from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import MergeSpec
from mia_audit.errors import UserError
from mia_audit.pools.persons import Persons
from mia_audit.pools.store import persons_of, read_membership
from mia_audit.storage import naming_damage, open_table, read_table, table_metadata, write_table
from mia_audit.storage.diverged import DIVERGED, diverged_of_all
from mia_audit.storage.stamps import STAMPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
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


def run(options: argparse.Namespace) -> None:
    """Write signals.parquet and training.parquet of a setting."""
    spec = MergeSpec.read(options.spec)
    if options.models and options.training:
        _merge_training([options.models / f"shadow-{shadow}.parquet" for shadow in spec.shadows], options.training)
    families = [
        [options.signals / family / f"shadow-{shadow}.parquet" for shadow in spec.shadows] for family in spec.families
    ]
    persons = persons_of(options.records) if options.records else None
    if options.references:
        _merge_target(families, options.membership, options.references, persons, options.out)
    else:
        _merge_signals(families, read_membership(options.membership, spec.shadows), persons, options.out)


def _merge_training(paths: list[Path], out: Path) -> None:
    _require(paths)
    joined = pa.concat_tables([read_table(path, "training") for path in paths])
    write_table(out, joined, "training", len(joined), diverged_of_all(paths, "training"))


def _require(paths: list[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise UserError(
                f"{path}: no such file; expected a job's output for this model. Delete {path.parent / STAMPS} and run"
                " again: only missing files are computed"
            )


def _merge_signals(families: list[list[Path]], membership: np.ndarray, persons: Persons | None, out: Path) -> None:
    for paths in families:
        _require(paths)
    diverged = diverged_of_all(families[0], "signals")
    shadows = [shadow for shadow in range(membership.shape[1]) if str(shadow) not in diverged.get(DIVERGED, {})]
    ids = None if persons is None else pa.array(persons.spread(persons.ids))
    tables = _shadows(families, membership, shadows, ids) if shadows else iter([_empty(families)])
    write_table(out, tables, "signals", len(membership) * len(shadows), diverged)


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

    stated = {TARGET: number, GIVEN: metadata[GIVEN]} | diverged_of_all([references], "signals")
    write_table(out, tables(), "signals", count + len(own), stated)


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
