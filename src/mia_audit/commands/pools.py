"""Stages that build a pool, the groups of its records, and the membership of shadow models."""

import argparse
import sys
from pathlib import Path

import numpy as np

from mia_audit.commands._arguments import add_pool, add_spec, add_threads
from mia_audit.config.specs import GroupsSpec, MembershipSpec, PoolSpec
from mia_audit.pools.build import build_pool
from mia_audit.pools.groups import groupings, write_groups
from mia_audit.pools.section import Draw, check_keys, load_source
from mia_audit.pools.store import draw_training_sets, write_membership, write_pool
from mia_audit.storage import open_table


def pool_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, PoolSpec)
    add_threads(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the pool")


def run_pool(options: argparse.Namespace) -> None:
    """Write records.npy, records.parquet, public.npy and public.parquet."""
    spec = PoolSpec.read(options.spec)
    name, section = spec.name, spec.dataset
    where = f"datasets.{name}"
    check_keys(section, where)
    new = not options.out.exists()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        source = load_source(section, where)
        pool = build_pool(source, section, name, seed=spec.seed, folder=options.out, threads=options.threads)
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
    if collected := metadata["collected"]:
        print(f"{name}: {' and '.join(collected)} collected from the records; a private release needs them stated")


def groups_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, GroupsSpec)
    add_pool(parser)
    parser.add_argument("--out", required=True, type=Path, help="groups.parquet")


def run_groups(options: argparse.Namespace) -> None:
    """Write groups.parquet."""
    spec = GroupsSpec.read(options.spec)
    where, table = f"datasets.{spec.name}", options.pool / "records.parquet"
    source = load_source(spec.dataset, where)
    grouped = groupings(source, spec.dataset, table, where)
    write_groups(options.out, grouped, open_table(table, "records").metadata.num_rows)


def membership_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, MembershipSpec)
    parser.add_argument("--records", required=True, type=Path, help="records.parquet of the pool")
    parser.add_argument("--out", required=True, type=Path, help="membership.parquet")


def run_membership(options: argparse.Namespace) -> None:
    """Write the membership matrix; if the unit is the person, all records of a person are drawn together."""
    spec = MembershipSpec.read(options.spec)
    design = spec.membership.model_dump(include={"design", "share"}, exclude_none=True)
    draw = Draw(**design, unit=spec.unit)
    membership = draw_training_sets(draw, options.records, spec.dataset, spec.seed, range(spec.membership.models))
    unit = {"unit": spec.unit} if spec.unit == "person" else {}
    write_membership(options.out, membership, {**design, **unit, "seed": spec.seed})
