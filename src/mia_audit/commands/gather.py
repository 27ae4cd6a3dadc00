"""`mia-audit gather`: join the tables of all blocks of a setting into one."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from mia_audit.errors import UserError
from mia_audit.missing import FACT, missing_of_all
from mia_audit.pools.files import read_membership
from mia_audit.storage import naming_damage, open_table, read_table, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--training", nargs="+", type=Path, help="training.parquet of every block, in order")
    parser.add_argument(
        "--signals",
        nargs="+",
        type=Path,
        action="append",
        help="signals of every block of one family, in order; again for every further family; label and outputs come from the first",
    )
    parser.add_argument("--membership", type=Path, help="membership.parquet, with --signals")
    parser.add_argument("--out", required=True, type=Path, help="the joined table")


def run(options: argparse.Namespace) -> None:
    """Write training.parquet or signals.parquet of a setting."""
    if options.training:
        tables = [read_table(path, "training") for path in options.training]
        joined = pa.concat_tables(tables)
        write_table(options.out, joined, "training", len(joined), missing_of_all(options.training, "training"))
    elif options.signals and options.membership:
        membership = read_membership(options.membership)
        lost = missing_of_all(options.signals[0], "signals")
        shadows = [shadow for shadow in range(membership.shape[1]) if str(shadow) not in lost.get(FACT, {})]
        found = _shadows(options.signals, membership, shadows) if shadows else iter([_nothing(options.signals)])
        write_table(options.out, found, "signals", len(membership) * len(shadows), lost)
    else:
        raise UserError("gather: expected --training FILES, or --signals FILES with --membership FILE")


def _shadows(families: list[list[Path]], membership: np.ndarray, shadows: list[int]) -> Iterator[pa.Table]:
    """Yield the signals of one shadow after the other: the families side by side, with the record's membership.

    Raises UserError when the files do not hold exactly one row group per shadow, in order, with every record in order.
    """
    records = len(membership)
    order = pa.array(np.arange(records, dtype=np.int32))
    streams = [_row_groups(paths) for paths in families]
    for shadow in shadows:
        columns: dict[str, pa.ChunkedArray | pa.Array] = {
            "shadow": pa.array(np.full(records, shadow, dtype=np.int32)),
            "record": order,
            "member": pa.array(membership[:, shadow]),
        }
        for stream in streams:
            path, group = next(stream, (None, None))
            if group is None:
                raise UserError(
                    f"{families[0][-1].parent}: no signals of shadow {shadow}; expected {len(shadows)} shadows. Delete the folder and run again"
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
                f"{surplus[0]}: more shadows than the {len(shadows)} of membership.parquet. Delete it and run again"
            )


def _nothing(families: list[list[Path]]) -> pa.Table:
    """Return the columns that the families would have had, without a row."""
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
