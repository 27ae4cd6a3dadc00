"""`mia-audit pool`: load a data set and write its pool."""

import argparse
import sys
from pathlib import Path

import numpy as np

from mia_audit.commands._arguments import add_spec, add_threads
from mia_audit.config.specs import PoolSpec
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.catalogue import check_keys
from mia_audit.pools.store import write_pool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, PoolSpec)
    add_threads(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the pool")


def run(options: argparse.Namespace) -> None:
    """Write records.npy, records.parquet, public.npy and public.parquet."""
    spec = PoolSpec.read(options.spec)
    name, section = spec.name, spec.dataset
    where = f"datasets.{name}"
    member = pools[section.source]
    check_keys(section, where)
    new = not options.out.exists()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        source = member.load(section, where)
        pool = build_pool(source, section, name, spec.seed, options.out, options.threads)
        write_pool(pool, options.out)
    except BaseException:
        if new and not any(options.out.iterdir()):
            options.out.rmdir()
        raise
    metadata = pool.metadata
    ids = [side.persons for side in (pool.audited, pool.public) if side.persons is not None]
    if ids:
        audited, public = map(np.unique, ids)
        print(f"{name}: {len(audited)} persons with audited records, {len(public)} with public records")
        if both := int(np.isin(ids[1], audited).sum()):
            print(
                f"warning: {where}.unit: record: {both} of {len(pool.public.labels)} public records belong to persons"
                " with audited records; with unit: person, all records of a person are either public or audited",
                file=sys.stderr,
            )
    print(
        f"{name}: {len(pool.audited.labels)} audited and {len(pool.public.labels)} public records out of"
        f" {metadata['source_records']}; {metadata['read']} read, {metadata['duplicates']} duplicates dropped"
    )
