"""`mia-audit membership`: draw who is in whose training set."""

import argparse
import json
from pathlib import Path

from mia_audit.config.load import parse
from mia_audit.config.schema import Membership
from mia_audit.membership import draw_membership
from mia_audit.pools.files import write_membership
from mia_audit.storage import open_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--records", required=True, type=Path, help="records.parquet of the pool")
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "dataset", "membership": the section}')
    parser.add_argument("--out", required=True, type=Path, help="membership.parquet")


def run(options: argparse.Namespace) -> None:
    """Write the membership matrix."""
    spec = json.loads(options.spec)
    section = parse(Membership, spec["membership"], "membership")
    records = open_table(options.records, "records").metadata.num_rows
    membership = draw_membership(section, records, spec["dataset"], spec["seed"])
    write_membership(
        options.out,
        membership,
        {**section.model_dump(include={"design", "share"}, exclude_none=True), "seed": spec["seed"]},
    )
