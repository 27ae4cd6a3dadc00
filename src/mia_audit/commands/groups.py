"""`mia-audit groups`: write the groups of every audited record of a pool."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_spec
from mia_audit.config.specs import GroupsSpec
from mia_audit.pools import pools
from mia_audit.pools.groups import groupings, write_groups
from mia_audit.storage import open_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, GroupsSpec)
    add_pool(parser)
    parser.add_argument("--out", required=True, type=Path, help="groups.parquet")


def run(options: argparse.Namespace) -> None:
    """Write groups.parquet."""
    spec = GroupsSpec.read(options.spec)
    where, table = f"datasets.{spec.name}", options.pool / "records.parquet"
    source = pools[spec.dataset.source].load(spec.dataset, where)
    grouped = groupings(source, spec.dataset, table, where)
    write_groups(options.out, grouped, open_table(table, "records").metadata.num_rows)
