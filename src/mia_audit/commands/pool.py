"""`mia-audit pool`: load a data set and write its pool."""

import argparse
import json
from pathlib import Path

from mia_audit.config.load import parse
from mia_audit.config.schema import Dataset
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.files import write_pool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "name", "dataset": the section}')
    parser.add_argument("--out", required=True, type=Path, help="folder of the pool")


def run(options: argparse.Namespace) -> None:
    """Write records.npy, records.parquet, public.npy and public.parquet."""
    spec = json.loads(options.spec)
    section = parse(Dataset, spec["dataset"], f"datasets.{spec['name']}")
    pool = build_pool(pools[section.pool](section), section, spec["name"], spec["seed"])
    write_pool(pool, options.out)
    facts = pool.facts
    print(
        f"{spec['name']}: {len(pool.audited.labels)} audited and {len(pool.public.labels)} public records out of"
        f" {facts['available']} distinct ones; {facts['duplicates']} duplicates dropped"
    )
