"""`mia-audit figures`: draw the figures of an audit as PDF, SVG and PNG."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.report_specs import ReportSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")


def run(options: argparse.Namespace) -> None:
    """Read metrics, scores and training tables, draw every figure in every format."""
    from mia_audit.report.data.find import find
    from mia_audit.report.data.opened import audited
    from mia_audit.report.data.spec import parse_spec
    from mia_audit.report.figures.catalogue import draw

    results = audited(options.results, parse_spec(ReportSpec.read(options.spec).model_dump(mode="json")))
    draw(results, find(results), options.out)
