"""`mia-audit target`: import a finished model, and write the records on which it was trained."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_run, add_spec, computing
from mia_audit.config.specs import TargetSpec
from mia_audit.errors import UserError
from mia_audit.planning.limits import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, TargetSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json of the model's references")
    add_run(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder for the model and its membership")


def run(options: argparse.Namespace) -> None:
    """Write a folder shadow-{k} with the model, and membership.parquet."""
    from mia_audit.attacks.io.parquet import GIVEN, TARGET
    from mia_audit.learners import open_learner
    from mia_audit.learners.finished import adopt
    from mia_audit.pools.named_members import check_persons, named_members
    from mia_audit.pools.persons import Persons
    from mia_audit.pools.store import read_persons, write_membership
    from mia_audit.storage import atomic_folder, read_table, sha256, table_metadata

    spec = TargetSpec.read(options.spec)
    table = options.pool / "records.parquet"
    rows = read_table(table, "records", ["source"])["source"].to_numpy()
    pool_metadata = table_metadata(table, "records")
    count = pool_metadata["source_records"]
    where = f"targets.{spec.name}"
    member = named_members(spec.data, spec.target.members, spec.target.id, rows, count, where)
    if pool_metadata.get("unit") == "person" and (ids := read_persons(table)) is not None:
        check_persons(member, Persons.numbered(ids), f"{where}.members: {spec.target.members}")
    _, learner = open_learner(options.architecture, computing(Run.read(options.run), options.threads))
    path = Path(spec.target.model)
    with atomic_folder(options.out) as folder:
        model = folder / f"shadow-{spec.number}"
        model.mkdir()
        try:
            adopt(learner, path, model)
            learner.load(model)
        except UserError as error:
            raise UserError(f"{where}.model: {str(error).replace(str(model), str(path))}") from None
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        metadata = {TARGET: spec.number, GIVEN: {str(one): sha256(one) for one in files}}
        write_membership(folder / "membership.parquet", member[:, None], metadata, first=spec.number)
    print(f"{spec.name}: {path}, trained on {member.sum()} of the pool's {len(member)} records")
