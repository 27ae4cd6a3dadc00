"""`mia-audit figures`: from metrics and scores to PDF, SVG and PNG."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--spec", required=True, help="what the figures depend on besides files, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")


def run(options: argparse.Namespace) -> None:
    """Read metrics, scores and training tables, draw every figure in every format."""
    from mia_audit.report.figures import draw
    from mia_audit.report.findings import find
    from mia_audit.report.gaps import audited
    from mia_audit.report.results import parse_spec

    results = audited(options.results, parse_spec(options.spec))
    draw(results, find(results), options.out)
