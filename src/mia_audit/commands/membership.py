"""`mia-audit membership`: draw every shadow model's training set."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import MembershipSpec
from mia_audit.pools.membership import draw_training_sets
from mia_audit.pools.section import Draw
from mia_audit.pools.store import write_membership


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, MembershipSpec)
    parser.add_argument("--records", required=True, type=Path, help="records.parquet of the pool")
    parser.add_argument("--out", required=True, type=Path, help="membership.parquet")


def run(options: argparse.Namespace) -> None:
    """Write the membership matrix; if the unit is the person, all records of a person are drawn together."""
    spec = MembershipSpec.read(options.spec)
    design = spec.membership.model_dump(include={"design", "share"}, exclude_none=True)
    draw = Draw(**design, unit=spec.unit)
    membership = draw_training_sets(draw, options.records, spec.dataset, spec.seed, range(spec.membership.models))
    unit = {"unit": spec.unit} if spec.unit == "person" else {}
    write_membership(options.out, membership, {**design, **unit, "seed": spec.seed})
