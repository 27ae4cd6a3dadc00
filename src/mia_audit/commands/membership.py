"""`mia-audit membership`: draw every shadow model's training set."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import MembershipSpec
from mia_audit.pools.membership import draw_membership
from mia_audit.pools.store import persons_of, write_membership
from mia_audit.storage import open_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, MembershipSpec)
    parser.add_argument("--records", required=True, type=Path, help="records.parquet of the pool")
    parser.add_argument("--out", required=True, type=Path, help="membership.parquet")


def run(options: argparse.Namespace) -> None:
    """Write the membership matrix; where the unit is the person, with a draw per person that all of their records follow."""
    spec = MembershipSpec.read(options.spec)
    design = spec.membership.model_dump(include={"design", "share"}, exclude_none=True)
    if spec.unit == "person":
        persons = persons_of(options.records)
        membership = persons.spread(draw_membership(spec.membership, len(persons), spec.dataset, spec.seed))
        design["unit"] = spec.unit
    else:
        records = open_table(options.records, "records").metadata.num_rows
        membership = draw_membership(spec.membership, records, spec.dataset, spec.seed)
    write_membership(options.out, membership, {**design, "seed": spec.seed})
