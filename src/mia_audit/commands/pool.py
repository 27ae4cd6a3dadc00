"""`mia-audit pool`: load a data set and write its pool."""

import argparse
import json
import sys
from pathlib import Path

from mia_audit.config.load import parse
from mia_audit.config.schema import Dataset
from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.catalogue import OPTIONAL_KEYS
from mia_audit.pools.files import write_pool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "name", "dataset": the section}')
    parser.add_argument("--threads", type=int, default=1, help="threads that read records")
    parser.add_argument("--out", required=True, type=Path, help="folder of the pool")


def run(options: argparse.Namespace) -> None:
    """Write records.npy, records.parquet, public.npy and public.parquet."""
    spec = json.loads(options.spec)
    name = spec["name"]
    where = f"datasets.{name}"
    section = parse(Dataset, spec["dataset"], where)
    member = pools[section.pool]
    for key in OPTIONAL_KEYS:
        if key not in member.keys and getattr(section, key) != Dataset.model_fields[key].default:
            raise UserError(
                f"{where}.{key}: pool '{section.pool}' does not read it;"
                f" it reads {', '.join(member.keys) or 'none of those keys'}"
            )
    new = not options.out.exists()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        source = member.load(section, where)
        pool = build_pool(source, section, name, spec["seed"], options.out, options.threads)
        write_pool(pool, options.out)
    except BaseException:
        if new and not any(options.out.iterdir()):
            options.out.rmdir()
        raise
    facts = pool.facts
    if release := facts.get("release"):
        told = f"{name}: constants of {len(release['bounds'])} columns released at ε = {release['epsilon']:g}, δ = {release['delta']:g}"
        print(
            f"{told}: noise of {release['noise']:.2%} of half a column's range; standard deviation at its floor: "
            + (", ".join(release["floored"]) or "none")
        )
        if release["delta"] * release["records"] >= 1:
            print(f"warning: {where}.standardise_delta is not below 1/(audited records)", file=sys.stderr)
    print(
        f"{name}: {len(pool.audited.labels)} audited and {len(pool.public.labels)} public records out of"
        f" {facts['source_records']}; {facts['read']} read, {facts['duplicates']} duplicates dropped"
    )
