"""`mia-audit attack`: turn the signals of a setting into membership scores."""

import argparse
import json
from pathlib import Path

from mia_audit.attacks.files import SignalsFile, write_scores
from mia_audit.attacks.run import permuted_membership, plan, scores_of
from mia_audit.config.load import parse
from mia_audit.config.schema import Attacks
from mia_audit.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--signals", required=True, type=Path, help="signals.parquet of a setting")
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "dataset", "attacks": the section}')
    parser.add_argument("--out", required=True, type=Path, help="scores.parquet")


def run(options: argparse.Namespace) -> None:
    """Write scores.parquet."""
    spec = json.loads(options.spec)
    section = parse(Attacks, spec["attacks"], "attacks")
    file = SignalsFile(options.signals)
    runs = plan(section.methods, file.signals, section.variances)
    if not runs:
        names = ", ".join(signal.name for signal in file.signals)
        raise UserError(f"{options.signals}: none of the attacks reads any of its signals ({names})")
    null = permuted_membership(file.member, spec["seed"], spec["dataset"])
    scored = scores_of(runs, file.read, file.member, null)
    facts = {"seed": spec["seed"], "dataset": spec["dataset"]}
    write_scores(options.out, scored, len(runs), file.record, file.models, facts)
