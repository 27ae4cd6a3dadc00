"""`mia-audit private-report`: write tables and figures of private explanations, and of the attacks on them."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.report_specs import ReportSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run(options: argparse.Namespace) -> None:
    """Write the tables and figures of private explanations: those registered with `private=True`."""
    from mia_audit.report.data.find import find
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import parse_spec
    from mia_audit.report.figures.catalogue import draw
    from mia_audit.report.tables.catalogue import write

    results = Results(options.results, parse_spec(ReportSpec.read(options.spec).model_dump(mode="json")))
    findings = find(results)
    write(results, findings, options.results / "tables", private=True)
    draw(results, findings, options.results / "figures", private=True)
