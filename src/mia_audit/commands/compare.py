"""`mia-audit compare`: compare two attacks, or one attack in two settings, on the same targets."""

import argparse
from pathlib import Path

from mia_audit.attacks.persons import AGGREGATES, NONE
from mia_audit.errors import UserError
from mia_audit.evaluation.comparison import compare
from mia_audit.sanitise import csv
from mia_audit.storage import read_frame


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--metrics", required=True, type=Path, help="metrics.parquet")
    parser.add_argument(
        "--against",
        type=Path,
        help="metrics.parquet of another setting with the same training sets, for the second attack",
    )
    for name in ("first", "second"):
        parser.add_argument(
            f"--{name}",
            required=True,
            nargs=3,
            metavar=("ATTACK", "SIGNAL", "LIKELIHOOD"),
            help="an attack in the table",
        )
    parser.add_argument(
        "--aggregate",
        choices=[NONE, *AGGREGATES],
        default=NONE,
        help="compare attacks on persons, by the sum, mean or maximum of their records' scores (none: attacks on records)",
    )
    parser.add_argument(
        "--margin",
        type=float,
        help="also test equivalence within this margin, which must be chosen in advance",
    )
    parser.add_argument("--confidence", type=float, default=0.95, help="level of the interval (0.95)")


def run(options: argparse.Namespace) -> None:
    """Print the paired difference of every metric as CSV."""
    if not 0 < options.confidence < 1:
        raise UserError(f"--confidence {options.confidence:g}: expected a number between 0 and 1")
    if options.margin is not None and not 0 < options.margin < 1:
        raise UserError(f"--margin {options.margin:g}: expected a number between 0 and 1")
    metrics = read_frame(options.metrics, "metrics")
    against = read_frame(options.against, "metrics") if options.against else None
    first, second = tuple(options.first), tuple(options.second)
    differences = compare(metrics, first, second, options.confidence, options.aggregate, options.margin, against)
    print(csv(differences), end="")
