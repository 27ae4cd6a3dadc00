"""`mia-audit tables`: write the tables of an audit as CSV, Parquet and LaTeX."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.report_specs import ReportSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")


def run(options: argparse.Namespace) -> None:
    """Read metrics and training tables, write every table in every format."""
    from mia_audit.report.data.find import find
    from mia_audit.report.data.opened import audited
    from mia_audit.report.data.spec import parse_spec
    from mia_audit.report.tables.catalogue import write

    results = audited(options.results, parse_spec(ReportSpec.read(options.spec).model_dump(mode="json")))
    write(results, find(results), options.out)
