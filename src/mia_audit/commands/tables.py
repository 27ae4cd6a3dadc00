"""`mia-audit tables`: from metrics to CSV, Parquet and LaTeX."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--spec", required=True, help="what the tables depend on besides files, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")


def run(options: argparse.Namespace) -> None:
    """Read metrics and training tables, write every table in every format."""
    from mia_audit.report.findings import find
    from mia_audit.report.gaps import audited
    from mia_audit.report.results import parse_spec
    from mia_audit.report.tables import build, write

    results = audited(options.results, parse_spec(options.spec))
    write(build(results, find(results)), options.out, results.spec)
