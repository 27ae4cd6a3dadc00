"""`mia-audit epsilon-bound`: compute lower bounds on ε from the attacks on a setting, or from lists of scores."""

import argparse
from pathlib import Path
from typing import Any

from mia_audit.attacks.io.checks import check_coins
from mia_audit.errors import UserError
from mia_audit.evaluation.bounds_table import bounds_table
from mia_audit.evaluation.files import metric_rows, metrics_table, read_scores
from mia_audit.evaluation.score_lists import is_score_list, read_score_list
from mia_audit.sanitise import csv
from mia_audit.storage import check_out, write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--scores",
        required=True,
        type=Path,
        help="scores.parquet; or a CSV or Parquet file with the columns member and score, or in and out, of one model",
    )
    parser.add_argument("--delta", type=float, default=1e-5, help="δ of the bounds (1e-5)")
    parser.add_argument("--confidence", type=float, default=0.95, help="confidence of each bound (0.95)")
    parser.add_argument(
        "--design", choices=["half", "bernoulli"], default="half", help="how membership was drawn (half)"
    )
    parser.add_argument("--out", required=True, type=Path, help="a CSV file")


def run(options: argparse.Namespace) -> None:
    """Write a row per attack and method."""
    for name in ("delta", "confidence"):
        if not 0 < getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name):g}: expected a number between 0 and 1")
    check_out(options.out, options.scores)
    rows: list[dict[str, Any]] = []
    listed = is_score_list(options.scores)
    for scored in [read_score_list(options.scores)] if listed else read_scores(options.scores):
        if options.design == "bernoulli" and not scored.key[-1]:
            check_coins(scored.member, "--design bernoulli")
        rows += metric_rows(scored, (), options.confidence)
    table = bounds_table(metrics_table(rows), options.delta, options.confidence, options.design == "bernoulli")
    write_text(options.out, csv(table))
