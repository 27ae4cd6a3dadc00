"""`mia-audit attack`: turn the signals of a setting into membership scores."""

import argparse
import json
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mia_audit.attacks.files import SignalsFile, TooFewModels, write_scores
from mia_audit.attacks.run import permuted_membership, plan, scores_of
from mia_audit.config.load import parse
from mia_audit.config.schema import Attacks
from mia_audit.errors import UserError
from mia_audit.missing import FACT, missing_of_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--signals", required=True, type=Path, help="signals.parquet of a setting")
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "dataset", "attacks": the section}')
    parser.add_argument("--out", required=True, type=Path, help="scores.parquet")


def run(options: argparse.Namespace) -> None:
    """Write scores.parquet; one without scores where so many models are left out that nothing can be attacked."""
    spec = json.loads(options.spec)
    section = parse(Attacks, spec["attacks"], "attacks")
    facts: dict[str, Any] = {"seed": spec["seed"], "dataset": spec["dataset"]}
    facts |= missing_of_all([options.signals], "signals")
    try:
        file = SignalsFile(options.signals)
    except TooFewModels:
        if FACT not in facts:
            raise
        write_scores(options.out, (), (), (), (), facts)
        return
    runs = plan(section.methods, file.signals, section.variances)
    if not runs:
        names = ", ".join(signal.name for signal in file.signals)
        raise UserError(f"{options.signals}: none of the attacks reads any of its signals ({names})")
    null = permuted_membership(file.member, spec["seed"], spec["dataset"])
    with threadpool_limits(1, "blas"):  # its products are too small to be worth threads
        scored = scores_of(runs, file.read, file.member, null)
        write_scores(options.out, scored, runs, file.record, file.target, facts)
